{{/* What both programs' pods have. Arguments: list of the root and the component. */}}
{{- define "epp-fleet.pod-metadata" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $values := index $root.Values $component }}
annotations:
  # Changed settings roll the pods; picker configurations are followed without that.
  checksum/settings: {{ include "epp-fleet.settings" $root | sha256sum }}
  {{- if eq $component "worker" }}
  linkerd.io/inject: disabled
  {{- end }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ ternary "9090" "8080" (eq $component "worker") | quote }}
  prometheus.io/path: /metrics
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
labels:
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "epp-fleet.selector" $component | nindent 2 }}
  # What dashboards and rules tell fleets apart by.
  epp-fleet.dev/fleet: {{ $root.Values.fleet }}
  {{- if eq $component "worker" }}
  # No mesh sidecar: gateways speak to the worker's own listener, and a sidecar that ends first would
  # cut the streams of a drain.
  sidecar.istio.io/inject: "false"
  {{- end }}
{{- end }}

{{/* The chart's own variables of a program. Arguments as above. */}}
{{- define "epp-fleet.own-env" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $redis := $root.Values.redis }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: EPP_FLEET_{{ upper $component }}__ADVERTISE_HOST
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- if eq $component "worker" }}
- name: EPP_FLEET_WORKER__NODE
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
# Kubernetes copies the node's zone into the pod's labels since 1.35. Empty before: then stand-bys are
# on another node, in whatever zone.
- name: EPP_FLEET_WORKER__ZONE
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['topology.kubernetes.io/zone']
# Workers of two templates are a roll-out: pools move to the new ones, and once each.
- name: EPP_FLEET_WORKER__RELEASE
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['pod-template-hash']
{{- end }}
{{- if eq $root.Values.scope "namespace" }}
- name: EPP_FLEET_KUBERNETES__WATCH_NAMESPACES
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}
{{- if eq $redis.mode "bundled" }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "epp-fleet.secret" $root }}
      key: redis-password
- name: EPP_FLEET_REDIS__URL
  value: redis://:$(REDIS_PASSWORD)@{{ $root.Values.name }}-redis:6379/0
{{- else if eq $redis.mode "external" }}
- name: EPP_FLEET_REDIS__URL
  valueFrom:
    secretKeyRef:
      name: {{ include "epp-fleet.redis-secret" $root }}
      key: url
{{- else }}
- name: REDIS_LOGIN
  value: {{ ternary $redis.sentinel.workerUser $redis.sentinel.coordinatorUser (eq $component "worker") | quote }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "epp-fleet.redis-secret" $root }}
      key: {{ $component }}-password
- name: EPP_FLEET_REDIS__URL
  value: {{ ternary "rediss" "redis" $redis.sentinel.tls }}+sentinel://$(REDIS_LOGIN):$(REDIS_PASSWORD)@{{ join "," $redis.sentinel.addresses }}/{{ $redis.sentinel.service }}/{{ $redis.sentinel.db }}{{ if $redis.sentinel.tls }}?ssl_ca_certs=/etc/epp-fleet/redis/ca.crt{{ end }}
- name: EPP_FLEET_REDIS__MIN_ACKS
  value: {{ $redis.sentinel.minAcks | quote }}
{{- end }}
{{- if $root.Values.readAuthorization.enabled }}
- name: EPP_FLEET_SECURITY__READS
  value: kubernetes
{{- end }}
{{- if and (eq $component "worker") $root.Values.gatewayTls.existingSecret }}
- name: EPP_FLEET_WORKER__TLS_CERTIFICATE_FILE
  value: /etc/epp-fleet/gateway-tls/tls.crt
- name: EPP_FLEET_WORKER__TLS_KEY_FILE
  value: /etc/epp-fleet/gateway-tls/tls.key
{{- end }}
{{- end }}

{{/* All of them: one of extraEnv takes the place of the chart's own of that name, where it stands, since
     variables are expanded in others after them. */}}
{{- define "epp-fleet.env" -}}
{{- $extra := (index (index . 0).Values (index . 1)).extraEnv }}
{{- $by := dict }}
{{- range $extra }}{{ $_ := set $by .name . }}{{ end }}
{{- $all := list }}
{{- range include "epp-fleet.own-env" . | fromYamlArray }}
  {{- $all = append $all (get $by .name | default .) }}
  {{- $_ := unset $by .name }}
{{- end }}
{{- range $extra }}
  {{- if hasKey $by .name }}{{ $all = append $all . }}{{ end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{- define "epp-fleet.volume-mounts" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
- name: settings
  mountPath: /etc/epp-fleet/settings
  readOnly: true
- name: picking
  mountPath: /etc/epp-fleet/picking
  readOnly: true
- name: token
  mountPath: /etc/epp-fleet/token
  readOnly: true
# The whole folder: a file mounted by subPath would not follow a renewal.
- name: certificates
  mountPath: /etc/epp-fleet/certificates
  readOnly: true
{{- if ne $root.Values.redis.mode "bundled" }}
- name: redis
  mountPath: /etc/epp-fleet/redis
  readOnly: true
{{- end }}
{{- if and (eq $component "worker") $root.Values.gatewayTls.existingSecret }}
- name: gateway-tls
  mountPath: /etc/epp-fleet/gateway-tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "epp-fleet.volumes" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
- name: settings
  configMap:
    name: {{ $root.Values.name }}-settings
# Picker configurations, if there are any; NAME.yaml each.
- name: picking
  configMap:
    name: {{ $root.Values.name }}-picking
    optional: true
- name: token
  secret:
    secretName: {{ include "epp-fleet.secret" $root }}
    defaultMode: 0440
    items:
      - key: token
        path: token
- name: certificates
  secret:
    secretName: {{ $root.Values.name }}-{{ $component }}-tls
    defaultMode: 0440
{{- if eq $root.Values.redis.mode "external" }}
- name: redis
  secret:
    secretName: {{ include "epp-fleet.redis-secret" $root }}
    defaultMode: 0440
{{- else if eq $root.Values.redis.mode "sentinel" }}
- name: redis
  secret:
    secretName: {{ include "epp-fleet.redis-secret" $root }}
    defaultMode: 0440
    optional: true
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- if and (eq $component "worker") $root.Values.gatewayTls.existingSecret }}
- name: gateway-tls
  secret:
    secretName: {{ $root.Values.gatewayTls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* Nothing; or a refusal, where Helm alone has set the number of workers so far: a Deployment that
loses its `replicas` falls to 1, whatever an autoscaler would have. */}}
{{- define "epp-fleet.handedOver" -}}
{{- $name := printf "%s-worker" .Values.name }}
{{- $there := lookup "apps/v1" "Deployment" .Release.Namespace $name }}
{{- $ours := false }}
{{- $others := false }}
{{- range (dig "metadata" "managedFields" list $there) }}
{{- if hasKey (dig "fieldsV1" "f:spec" dict .) "f:replicas" }}
{{- if eq .manager "helm" }}
{{- $ours = true }}
{{- else }}
{{- $others = true }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $ours (not $others) }}
{{- $now := int $there.spec.replicas }}
{{- fail (printf "worker.autoscaling: %s would fall from %d workers to 1, since this release has set their number so far; take it out of Helm's hands by scaling to another one (kubectl -n %s scale deployment/%s --replicas=%d), then upgrade again" $name $now .Release.Namespace $name (add1 $now)) }}
{{- end }}
{{- end }}
