{{- define "epp-fleet.labels" -}}
app.kubernetes.io/part-of: epp-fleet
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Of a component's pods: what selectors go by. Arguments: the component. */}}
{{- define "epp-fleet.selector" -}}
app.kubernetes.io/name: epp-fleet
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "epp-fleet.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "epp-fleet.secret" -}}
{{ .Values.existingSecret | default (printf "%s-secrets" .Values.name) }}
{{- end }}

{{- define "epp-fleet.redis-secret" -}}
{{ .Values.redis.existingSecret | default (printf "%s-redis" .Values.name) }}
{{- end }}

{{/* Role and RoleBinding, or ClusterRole and ClusterRoleBinding, as the scope is. */}}
{{- define "epp-fleet.role-kind" -}}
{{ if eq .Values.scope "cluster" }}ClusterRole{{ else }}Role{{ end }}
{{- end }}

{{- define "epp-fleet.pod-security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "epp-fleet.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* Where pods go. Arguments: list of the component's values and its name. */}}
{{- define "epp-fleet.scheduling" -}}
{{- $values := index . 0 }}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "epp-fleet.selector" (index $ 1) | nindent 8 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "epp-fleet.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
