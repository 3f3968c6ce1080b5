{{- define "oneflight.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "oneflight.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "oneflight.labels" -}}
{{ include "oneflight.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "oneflight.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "oneflight.configMap" -}}
{{- .Values.existingConfigMap | default (include "oneflight.name" .) -}}
{{- end -}}

{{/* The Secret behind /run/secrets/oneflight; nothing: there is none. */}}
{{- define "oneflight.secret" -}}
{{- if .Values.secrets.existing -}}
{{- .Values.secrets.existing -}}
{{- else if .Values.secrets.values -}}
{{- include "oneflight.name" . -}}
{{- end -}}
{{- end -}}

{{/* What would let every pod start badly, said before there is one. */}}
{{- define "oneflight.checked" -}}
{{- if not .Values.existingConfigMap -}}
{{- $config := fromYaml .Values.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config is no YAML: %s" $config.Error) -}}
{{- end -}}
{{- $admin := $config.admin | default dict -}}
{{- $listen := $config.listen | default dict -}}
{{- if or (not (kindIs "map" $admin)) (has ($admin.host | default "127.0.0.1") (list "127.0.0.1" "::1" "localhost")) -}}
{{- fail "config: admin.host must be 0.0.0.0 or ::, with a token: probes come to the pod's address" -}}
{{- end -}}
{{- range $name, $port := dict "listen" (dict "is" $listen.port "default" 8080 "value" .Values.ports.http) "admin" (dict "is" $admin.port "default" 9090 "value" .Values.ports.admin) -}}
{{- /* One that a variable holds is known to the pod alone. */ -}}
{{- if and (not (kindIs "string" $port.is)) (ne (int ($port.is | default $port.default)) (int $port.value)) -}}
{{- fail (printf "config: %s.port is %v, and ports has %v" $name ($port.is | default $port.default) $port.value) -}}
{{- end -}}
{{- end -}}
{{- if and (contains "/run/secrets/oneflight/" .Values.config) (not (include "oneflight.secret" .)) -}}
{{- fail "config names files in /run/secrets/oneflight: set secrets.existing to a Secret that has them" -}}
{{- end -}}
{{- $store := $config.store | default dict -}}
{{- if and (ne ($store.kind | default "memory") "redis") (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1)) -}}
{{- fail "config: several replicas share their claims in Redis: store.kind must be redis, or replicas 1" -}}
{{- end -}}
{{- end -}}
{{- end -}}
