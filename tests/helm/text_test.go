package helm

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func newReader(text string) *bufio.Reader {
	return bufio.NewReader(strings.NewReader(text))
}

func withoutComments(text string) string {
	var kept []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// writeEnvironment writes what a container is started with: its arguments in the first line, its variables after it.
func writeEnvironment(t *testing.T, folder, name string, container corev1.Container) {
	t.Helper()
	lines := []string{strings.Join(container.Args, " ")}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			lines = append(lines, variable.Name+"="+variable.Value)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
