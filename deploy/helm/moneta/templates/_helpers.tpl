{{- define "moneta.name" -}}
{{- if contains "moneta" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-moneta" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "moneta.labels" -}}
app.kubernetes.io/name: moneta
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "moneta.selector" -}}
app.kubernetes.io/name: moneta
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "moneta.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The topology: a replica a zone, a slot a pod, by the stable names of the pods. */ -}}
{{- define "moneta.topology" -}}
epoch = {{ .Values.topologyEpoch | default .Release.Revision }}
{{ range $zone := .Values.zones }}
[[replica]]
name = {{ $zone.name | quote }}
zone = {{ $zone.name | quote }}
nodes = [
{{- range $slot := until (int $.Values.nodesPerZone) }}
  "{{ include "moneta.host" (dict "root" $ "zone" $zone.name "slot" $slot) }}:11211",
{{- end }}
]
{{ end }}
{{- end }}

{{- define "moneta.host" -}}
{{- $name := printf "%s-%s" (include "moneta.name" .root) .zone -}}
{{ $name }}-{{ .slot }}.{{ $name }}.{{ .root.Release.Namespace }}.svc
{{- end }}

{{- /* What nodes and proxies have in common in their environment. */ -}}
{{- define "moneta.environment" -}}
- { name: MONETA_LISTEN, value: {{ .Values.listenAddress | quote }} }
- { name: MONETA_ADMIN, value: {{ printf (contains ":" .Values.listenAddress | ternary "[%s]:11280" "%s:11280") .Values.listenAddress | quote }} }
{{- if not .Values.users.enabled }}
{{- if not .Values.networkPolicy.enabled }}
{{- fail "users.enabled and networkPolicy.enabled are both false: whoever is in the Kubernetes cluster could change how nodes run; enable one of them" }}
{{- end }}
# Network policies keep strangers out.
- { name: MONETA_ADMIN_OPEN, value: "on" }
{{- end }}
- { name: MONETA_ADMIN_METRICS_OPEN, value: "on" }
- { name: MONETA_LOG_FORMAT, value: json }
{{- if .Values.tls.enabled }}
- { name: MONETA_TLS_CERT, value: /etc/moneta/tls/tls.crt }
- { name: MONETA_TLS_KEY, value: /etc/moneta/tls/tls.key }
- { name: MONETA_TLS_CA, value: /etc/moneta/tls/ca.crt }
- { name: MONETA_TLS_CLIENTS, value: {{ .Values.tls.clients | quote }} }
{{- end }}
{{- if .Values.users.enabled }}
- { name: MONETA_USERS, value: /etc/moneta/users/users.toml }
- { name: MONETA_LOGIN_FILE, value: /etc/moneta/login/login }
{{- end }}
{{- end }}

{{- /* Further options, as environment variables. */ -}}
{{- define "moneta.options" -}}
{{- range $name, $value := . }}
- { name: {{ printf "MONETA_%s" (upper $name | replace "-" "_") }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end }}

{{- define "moneta.mounts" -}}
- { name: topology, mountPath: /etc/moneta/topology, readOnly: true }
{{- if .Values.tls.enabled }}
- { name: tls, mountPath: /etc/moneta/tls, readOnly: true }
{{- end }}
{{- if .Values.users.enabled }}
- { name: users, mountPath: /etc/moneta/users, readOnly: true }
- { name: login, mountPath: /etc/moneta/login, readOnly: true }
{{- end }}
{{- end }}

{{- define "moneta.volumes" -}}
- name: topology
  configMap: { name: {{ include "moneta.name" . }}-topology }
{{- if .Values.tls.enabled }}
- name: tls
  secret: { secretName: {{ required "tls.secret names the secret with the certificate" .Values.tls.secret }}, defaultMode: 0440 }
{{- end }}
{{- if .Values.users.enabled }}
- name: users
  secret: { secretName: {{ required "users.secret names the secret with users.toml" .Values.users.secret }}, defaultMode: 0440 }
- name: login
  secret: { secretName: {{ required "users.loginSecret names the secret with login" .Values.users.loginSecret }}, defaultMode: 0440 }
{{- end }}
{{- end }}

{{- define "moneta.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "moneta.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "moneta.probes" -}}
{{- $scheme := .Values.tls.enabled | ternary "HTTPS" "HTTP" -}}
# A node reads its SSD and catches up before it is ready; meanwhile it is alive.
startupProbe:
  httpGet: { path: /healthz, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /healthz, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: admin, scheme: {{ $scheme }} }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}
