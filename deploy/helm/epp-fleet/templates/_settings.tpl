{{/* What differs from the defaults, and over it what the values say: as deploy/base/settings.yaml. */}}
{{- define "epp-fleet.own-settings" -}}
fleet: {{ .Values.fleet | quote }}
election:
  kind: "kubernetes"
source:
  kind: "kubernetes"
routes:
  kind: "endpointslices"
picking:
  configs_folder: "/etc/epp-fleet/picking"
ownership:
  controller_name: {{ printf "epp-fleet.dev/%s" .Values.fleet | quote }}
  claim: "all"
worker:
  # The headless Service of the workers: those that start while nobody leads ask each other.
  peers: {{ printf "dns:%s-workers:9004" .Values.name | quote }}
  quiet_seconds: 30
  stream_drain_seconds: 600
security:
  token_file: "/etc/epp-fleet/token/token"
  ca_file: "/etc/epp-fleet/certificates/ca.crt"
  certificate_file: "/etc/epp-fleet/certificates/tls.crt"
  key_file: "/etc/epp-fleet/certificates/tls.key"
log:
  format: "json"
{{- end }}

{{- define "epp-fleet.settings" -}}
{{- $own := include "epp-fleet.own-settings" . | fromYaml }}
{{- mergeOverwrite $own (deepCopy .Values.settings) | toYaml }}
{{- end }}

{{/* Seconds from a worker's SIGTERM to its end at the latest: quiet, drain and 10. */}}
{{- define "epp-fleet.grace" -}}
{{- $worker := (include "epp-fleet.settings" . | fromYaml).worker }}
{{- addf $worker.quiet_seconds $worker.stream_drain_seconds 10 | ceil | int }}
{{- end }}
