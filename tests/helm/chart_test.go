// The chart in deploy/helm, by Helm's own packages: linted, rendered with several sets of values, and each object decoded strictly into
// Kubernetes' types, which knows neither a field that is misspelt nor one in the wrong place.
package helm

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const chartFolder = "../../deploy/helm/moneta"

func codecs(t *testing.T) serializer.CodecFactory {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(types, serializer.EnableStrict)
}

// render returns the objects that a set of values makes. The schema of the values is held to, as by `helm template`.
func render(t *testing.T, values chartutil.Values) ([][]byte, error) {
	t.Helper()
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "cache", Namespace: "apps", Revision: 3, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var objects [][]byte
	for name, text := range files {
		if strings.HasSuffix(name, ".txt") || strings.TrimSpace(text) == "" {
			continue
		}
		reader := yaml.NewYAMLReader(newReader(text))
		for {
			object, err := reader.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(strings.TrimSpace(withoutComments(string(object)))) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

func valuesOf(t *testing.T, path string) chartutil.Values {
	t.Helper()
	values, err := chartutil.ReadValuesFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func TestEachSetOfValuesMakesObjectsThatKubernetesKnows(t *testing.T) {
	sets, err := filepath.Glob(filepath.Join(chartFolder, "ci/*-values.yaml"))
	if err != nil || len(sets) < 3 {
		t.Fatalf("%v sets of values, %v", sets, err)
	}
	decoder := codecs(t).UniversalDeserializer()
	for _, set := range sets {
		t.Run(filepath.Base(set), func(t *testing.T) {
			objects, err := render(t, valuesOf(t, set))
			if err != nil {
				t.Fatal(err)
			}
			kinds := map[string]int{}
			for _, object := range objects {
				decoded, kind, err := decoder.Decode(object, nil, nil)
				if runtime.IsNotRegisteredError(err) && strings.Contains("\n"+string(object), "\napiVersion: monitoring.coreos.com/v1\n") {
					// Types of an operator that may not be there.
					kinds["monitoring"]++
					continue
				}
				if err != nil {
					t.Fatalf("%v in\n%s", err, object)
				}
				check(t, decoded, *kind)
				kinds[kind.Kind]++
			}
			t.Logf("%v", kinds)
			if zones := kinds["StatefulSet"]; kinds["Deployment"]+kinds["DaemonSet"] != zones {
				t.Fatalf("%d zones, and not as many sets of proxies: %v", zones, kinds)
			}
			if kinds["StatefulSet"] == 0 || kinds["Service"] < 2 || kinds["ConfigMap"] != 1 {
				t.Fatalf("not all is there: %v", kinds)
			}
		})
	}
}

// check holds what the types do not: selectors that find their own pods, mounts that have volumes, ports that have names.
func check(t *testing.T, object runtime.Object, kind schema.GroupVersionKind) {
	t.Helper()
	var name string
	var selector map[string]string
	var pods corev1.PodTemplateSpec
	var claims []corev1.PersistentVolumeClaim
	switch object := object.(type) {
	case *appsv1.StatefulSet:
		name, selector, pods, claims = object.Name, object.Spec.Selector.MatchLabels, object.Spec.Template, object.Spec.VolumeClaimTemplates
	case *appsv1.Deployment:
		name, selector, pods = object.Name, object.Spec.Selector.MatchLabels, object.Spec.Template
	case *appsv1.DaemonSet:
		name, selector, pods = object.Name, object.Spec.Selector.MatchLabels, object.Spec.Template
	default:
		return
	}
	for label, value := range selector {
		if pods.Labels[label] != value {
			t.Errorf("%s %s: its selector does not find its pods: %s", kind.Kind, name, label)
		}
	}
	volumes := map[string]bool{}
	for _, volume := range pods.Spec.Volumes {
		volumes[volume.Name] = true
	}
	for _, claim := range claims {
		volumes[claim.Name] = true
	}
	for _, container := range pods.Spec.Containers {
		for _, mount := range container.VolumeMounts {
			if !volumes[mount.Name] {
				t.Errorf("%s %s: no volume %s", kind.Kind, name, mount.Name)
			}
		}
		set := map[string]bool{}
		for _, variable := range container.Env {
			if set[variable.Name] {
				t.Errorf("%s %s: %s is set twice", kind.Kind, name, variable.Name)
			}
			set[variable.Name] = true
		}
		if container.ReadinessProbe == nil || container.LivenessProbe == nil || container.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s %s: no probes, or no limit on its memory", kind.Kind, name)
		}
	}
	// Options that the program does not know are found by it: see the test of its environment.
	if path := os.Getenv("MONETA_CHART_ENV"); path != "" {
		writeEnvironment(t, path, kind.Kind+"-"+name, pods.Spec.Containers[0])
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	zones := []any{map[string]any{"name": "a", "topologyZone": "eu-1a"}, map[string]any{"name": "b"}}
	wrong := map[string]chartutil.Values{
		"a misspelt value":        {"nodesPerZones": 2},
		"a misspelt value within": {"node": map[string]any{"memoryMib": 1}},
		"a number as text":        {"nodesPerZone": "two"},
		"no zones":                {"zones": []any{}},
		"an unknown kind":         {"proxy": map[string]any{"kind": "Job"}},
		"TLS without a secret":    {"tls": map[string]any{"enabled": true}},
		"open admin ports":        {"networkPolicy": map[string]any{"enabled": false}},
		"an upgrade of no zone":   {"upgradeZones": []any{"d"}},
		"machines of no zone":     {"zones": zones, "proxy": map[string]any{"kind": "DaemonSet"}},
	}
	for name, values := range wrong {
		if _, err := render(t, values); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A proxy that is told another zone than its machine's would read across zones.
func TestEachProxyIsOfTheZoneOfItsMachine(t *testing.T) {
	objects, err := render(t, valuesOf(t, filepath.Join(chartFolder, "ci/daemon-values.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range objects {
		decoded, _, err := codecs(t).UniversalDeserializer().Decode(object, nil, nil)
		set, isSet := decoded.(*appsv1.DaemonSet)
		if err != nil || !isSet {
			continue
		}
		pod := set.Spec.Template.Spec
		terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		for _, variable := range pod.Containers[0].Env {
			if variable.Name == "MONETA_ZONE" {
				found[variable.Value] = terms[0].MatchExpressions[0].Key + "=" + terms[0].MatchExpressions[0].Values[0]
			}
		}
	}
	if len(found) != 2 || found["a"] != "topology.kubernetes.io/zone=eu-1a" || found["b"] != "topology.kubernetes.io/zone=eu-1b" {
		t.Fatalf("%v", found)
	}
}

// An upgrade zone by zone: those that are not named keep their pods.
func TestAnUpgradeReplacesPodsOfTheZonesThatAreNamed(t *testing.T) {
	objects, err := render(t, chartutil.Values{"nodesPerZone": 3, "upgradeZones": []any{"a", "c"}})
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]int32{}
	for _, object := range objects {
		decoded, _, err := codecs(t).UniversalDeserializer().Decode(object, nil, nil)
		set, isSet := decoded.(*appsv1.StatefulSet)
		if err != nil || !isSet {
			continue
		}
		kept[set.Labels["moneta/zone"]] = 0
		if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
			kept[set.Labels["moneta/zone"]] = *rolling.Partition
		}
	}
	if len(kept) != 3 || kept["a"] != 0 || kept["b"] != 3 || kept["c"] != 0 {
		t.Errorf("pods that an upgrade keeps: %v", kept)
	}
}

func TestTheChartIsLinted(t *testing.T) {
	for _, message := range lint.All(chartFolder, nil, "apps", true).Messages {
		// An icon is for a catalogue.
		if message.Severity >= support.WarningSev {
			t.Error(message)
		}
	}
}
