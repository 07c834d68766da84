#!/usr/bin/env python3
"""Makes deploy/monitoring: a dashboard of Grafana, rules of Prometheus with their tests, and a list of queries that must have samples.

Each metric that a query names must stand in docs/metrics.md, which a test holds to the declarations; each alert must have a part in
docs/alerts.md. `monitoring.py` writes the files, `monitoring.py --check` fails where they would change.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy/monitoring"

# Where samples come from: `node`, `ssd` (a node with an SSD tier), `proxy`, `relay`.
# Row: panels. Panel: title, unit of Grafana, queries (expression, legend), who must have samples.
NODE = 'job="moneta",instance=~"$instance"'
DASHBOARD = {
    "Traffic": [
        ("Commands a second", "ops", [(f"sum by (command) (rate(moneta_commands_total{{{NODE}}}[$__rate_interval]))", "{{command}}")], "node"),
        ("Commands a second, by process", "ops", [(f"sum by (instance) (rate(moneta_commands_total{{{NODE}}}[$__rate_interval]))", "{{instance}}")], "node"),
        ("Gets that find an item", "percentunit", [
            (f'sum by (instance) (rate(moneta_command_results_total{{{NODE},command="get",result="hit"}}[$__rate_interval])) / sum by (instance) (rate(moneta_command_results_total{{{NODE},command="get"}}[$__rate_interval]))', "{{instance}}")], "node"),
        ("Reads a second, by tier", "ops", [(f"sum by (tier) (rate(moneta_tier_reads_total{{{NODE}}}[$__rate_interval]))", "{{tier}}")], "ssd"),
        ("Bytes in and out", "Bps", [
            (f"sum(rate(moneta_received_bytes_total{{{NODE}}}[$__rate_interval]))", "in"),
            (f"sum(rate(moneta_sent_bytes_total{{{NODE}}}[$__rate_interval]))", "out")], "node"),
    ],
    "Times": [
        ("Time of commands, 50 and 99 of 100", "s", [
            (f"histogram_quantile({q}, sum by (le, command) (rate(moneta_command_duration_seconds_bucket{{{NODE}}}[$__rate_interval])))", f"{{{{command}}}} p{int(q * 100)}") for q in (0.5, 0.99)], "node"),
        ("Requests that waited long, and large values", "ops", [
            (f"sum(rate(moneta_slow_requests_total{{{NODE}}}[$__rate_interval]))", "waited"),
            (f"sum(rate(moneta_large_values_total{{{NODE}}}[$__rate_interval]))", "large")], "node"),
        ("Share of time that workers are held up", "percentunit", [
            (f"sum by (instance) (rate(moneta_worker_late_seconds_total{{{NODE}}}[$__rate_interval])) / sum by (instance) (moneta_worker_threads{{{NODE}}})", "{{instance}}")], "node"),
        ("Share of the hottest key", "percentunit", [(f"max by (instance, of) (moneta_hot_key_ratio{{{NODE}}})", "{{instance}} {{of}}")], "node"),
    ],
    "Clients": [
        ("Connections", "short", [
            (f"sum by (instance) (moneta_connections{{{NODE}}})", "{{instance}}"),
            (f"max(moneta_connections_limit{{{NODE}}})", "limit")], "node"),
        ("Connections turned away or failed, a second", "ops", [
            (f"sum(rate(moneta_connections_rejected_total{{{NODE}}}[$__rate_interval]))", "turned away"),
            (f"sum(rate(moneta_connections_failed_total{{{NODE}}}[$__rate_interval]))", "failed")], "node"),
        ("Requests that failed, a second", "ops", [(f"sum by (reason) (rate(moneta_request_errors_total{{{NODE}}}[$__rate_interval]))", "{{reason}}")], "node"),
        ("Refused for want of a right or a log-in, a second", "ops", [
            (f"sum(rate(moneta_rights_refused_total{{{NODE}}}[$__rate_interval]))", "right"),
            (f"sum(rate(moneta_authentication_failures_total{{{NODE}}}[$__rate_interval]))", "log-in")], "node"),
        ("Memory held for clients", "bytes", [
            (f"sum by (kind) (moneta_client_memory_bytes{{{NODE}}})", "{{kind}}"),
            (f"sum(moneta_client_memory_limit_bytes{{{NODE}}})", "limit")], "node"),
    ],
    "RAM": [
        ("Memory of items, by part", "bytes", [
            (f"sum by (part) (moneta_memory_bytes{{{NODE}}})", "{{part}}"),
            (f"sum(moneta_memory_limit_bytes{{{NODE}}})", "limit")], "node"),
        ("Items", "short", [(f"sum by (instance) (moneta_items{{{NODE}}})", "{{instance}}")], "node"),
        ("Evicted and expired, a second", "ops", [
            (f"sum(rate(moneta_evictions_total{{{NODE}}}[$__rate_interval]))", "evicted"),
            (f"sum(rate(moneta_evictions_unread_total{{{NODE}}}[$__rate_interval]))", "evicted, never read"),
            (f"sum(rate(moneta_expirations_total{{{NODE}}}[$__rate_interval]))", "expired")], "node"),
    ],
    "SSD": [
        ("Regions", "short", [(f"sum by (state) (moneta_flash_regions{{{NODE}}})", "{{state}}")], "ssd"),
        ("Bytes written and read, a second", "Bps", [
            (f"sum(rate(moneta_flash_device_written_bytes_total{{{NODE}}}[$__rate_interval]))", "written"),
            (f"sum(rate(moneta_flash_device_read_bytes_total{{{NODE}}}[$__rate_interval]))", "read")], "ssd"),
        ("Bytes written for each byte stored", "none", [(f"moneta_flash_write_amplification{{{NODE}}}", "{{instance}}")], "ssd"),
        ("Time of a read, 99 of 100", "s", [
            (f"histogram_quantile(0.99, sum by (le, instance) (rate(moneta_flash_read_duration_seconds_bucket{{{NODE}}}[$__rate_interval])))", "{{instance}}")], "ssd-read"),
        ("Age of the oldest item", "s", [(f"moneta_flash_oldest_age_seconds{{{NODE}}}", "{{instance}}")], "ssd"),
    ],
    "Proxies": [
        ("Nodes that are asked", "short", [
            (f"sum by (app, zone) (moneta_cluster_node_up{{{NODE}}})", "{{app}} {{zone}}")], "proxy"),
        ("Time of nodes' answers", "s", [(f"max by (node) (moneta_cluster_node_answer_seconds{{{NODE}}})", "{{node}}")], "proxy"),
        ("Hints that wait", "short", [(f"sum by (node) (moneta_cluster_hints{{{NODE}}})", "{{node}}")], "proxy"),
        ("Reads that went on to another copy, a second", "ops", [
            (f"sum by (app) (rate(moneta_cluster_second_reads_total{{{NODE}}}[$__rate_interval]))", "{{app}}")], "proxy"),
        ("Reads, by result, a second", "ops", [
            (f"sum by (result) (rate(moneta_cluster_reads_total{{{NODE}}}[$__rate_interval]))", "{{result}}")], "proxy"),
    ],
    "Relays": [
        ("Behind the other region", "s", [(f"max by (instance, region) (moneta_relay_lag_seconds{{{NODE}}})", "{{instance}} from region {{region}}")], "relay"),
        ("Changes a second, and those under way", "short", [
            (f"sum by (region) (rate(moneta_relay_changes_total{{{NODE}}}[$__rate_interval]))", "read of region {{region}}"),
            (f"sum by (region) (moneta_relay_under_way{{{NODE}}})", "under way from region {{region}}")], "relay"),
        ("Time until the probe is read here, 50 and 99 of 100", "s", [
            (f"histogram_quantile({q}, sum by (le, instance) (rate(moneta_relay_probe_seconds_bucket{{{NODE}}}[$__rate_interval])))", f"{{{{instance}}}} p{int(q * 100)}") for q in (0.5, 0.99)], "relay"),
        ("Left out, a second, and gaps", "short", [
            (f"sum by (reason) (rate(moneta_relay_refused_total{{{NODE}}}[$__rate_interval]))", "{{reason}}"),
            (f"sum by (cause) (increase(moneta_relay_gaps_total{{{NODE}}}[$__rate_interval]))", "gap: {{cause}}")], "relay"),
    ],
}

# Alert: (expression, for, severity, summary, what must have samples, series that fire it, series that do not, labels of the alert).
# Series: name and labels to values in Prometheus' notation, a sample a minute.
I = 'instance="n:11280",job="moneta"'
RATE = "[5m]"
ALERTS = {
    "MonetaDown": ('up{job="moneta"} == 0', "2m", "critical", "{{ $labels.instance }} does not answer its scrape", "up",
                   {f"up{{{I}}}": "0x20"}, {f"up{{{I}}}": "1x20"}),
    "MonetaNotReady": ("moneta_ready == 0", "5m", "critical", "{{ $labels.instance }} is not ready for clients", "node",
                       {f"moneta_ready{{{I}}}": "0x20"}, {f"moneta_ready{{{I}}}": "1x20"}),
    "MonetaRestarts": ("changes(moneta_start_time_seconds[30m]) >= 3", "0m", "warning", "{{ $labels.instance }} was started three times within half an hour", "node",
                       {f"moneta_start_time_seconds{{{I}}}": "1 1 2 2 3 3 4 4 5 5 5 5 5 5 5 5 5 5 5"}, {f"moneta_start_time_seconds{{{I}}}": "1x9 2x9"}),
    "MonetaConnectionsNearLimit": ("moneta_connections / moneta_connections_limit > 0.9", "5m", "warning", "{{ $labels.instance }} has nine tenths of the connections that it may have", "node",
                                   {f"moneta_connections{{{I}}}": "950x20", f"moneta_connections_limit{{{I}}}": "1000x20"},
                                   {f"moneta_connections{{{I}}}": "100x20", f"moneta_connections_limit{{{I}}}": "1000x20"}),
    "MonetaConnectionsRejected": (f"increase(moneta_connections_rejected_total{RATE}) > 0", "0m", "critical", "{{ $labels.instance }} turns clients away", "node",
                                  {f"moneta_connections_rejected_total{{{I}}}": "0+10x20"}, {f"moneta_connections_rejected_total{{{I}}}": "7x20"}),
    "MonetaWritesWithoutRoom": (f"increase(moneta_out_of_memory_total{RATE}) > 0", "0m", "critical", "{{ $labels.instance }} refuses writes for want of room", "node",
                                {f"moneta_out_of_memory_total{{{I}}}": "0+1x20"}, {f"moneta_out_of_memory_total{{{I}}}": "3x20"}),
    "MonetaTooSmall": ("rate(moneta_evictions_unread_total[15m]) / rate(moneta_evictions_total[15m]) > 0.5 and rate(moneta_evictions_total[15m]) > 10", "30m", "warning",
                       "{{ $labels.instance }} evicts items before they are read", "node",
                       {f"moneta_evictions_unread_total{{{I}}}": "0+6000x60", f"moneta_evictions_total{{{I}}}": "0+6600x60"},
                       {f"moneta_evictions_unread_total{{{I}}}": "0+60x60", f"moneta_evictions_total{{{I}}}": "0+6600x60"}),
    "MonetaClientMemoryNearLimit": ("sum by (instance, job) (moneta_client_memory_bytes) / sum by (instance, job) (moneta_client_memory_limit_bytes) > 0.8", "5m", "warning",
                                    "{{ $labels.instance }} holds four fifths of the memory that it may hold for clients", "node",
                                    {f'moneta_client_memory_bytes{{{I},kind="output"}}': "90x20", f"moneta_client_memory_limit_bytes{{{I}}}": "100x20"},
                                    {f'moneta_client_memory_bytes{{{I},kind="output"}}': "10x20", f"moneta_client_memory_limit_bytes{{{I}}}": "100x20"}),
    "MonetaStoreFails": (f'rate(moneta_request_errors_total{{reason="store"}}{RATE}) > 0.1', "5m", "critical", "{{ $labels.instance }} cannot answer requests: its store fails", "node",
                         {f'moneta_request_errors_total{{{I},reason="store"}}': "0+60x20"}, {f'moneta_request_errors_total{{{I},reason="store"}}': "5x20"}),
    "MonetaSlowRequests": (f"rate(moneta_slow_requests_total{RATE}) > 1", "10m", "warning", "{{ $labels.instance }} has requests that wait long for its store", "node",
                           {f"moneta_slow_requests_total{{{I}}}": "0+600x30"}, {f"moneta_slow_requests_total{{{I}}}": "0+6x30"}),
    "MonetaWorkersHeldUp": (f"sum by (instance, job) (rate(moneta_worker_late_seconds_total{RATE})) / sum by (instance, job) (moneta_worker_threads) > 0.05", "10m", "warning",
                            "workers of {{ $labels.instance }} are held up for a twentieth of the time", "node",
                            {f"moneta_worker_late_seconds_total{{{I}}}": "0+24x30", f"moneta_worker_threads{{{I}}}": "4x30"},
                            {f"moneta_worker_late_seconds_total{{{I}}}": "0+1x30", f"moneta_worker_threads{{{I}}}": "4x30"}),
    "MonetaHotKey": ('moneta_hot_key_ratio{of="requests"} > 0.2', "10m", "warning", "one key has a fifth of the requests of {{ $labels.instance }}", "node",
                     {f'moneta_hot_key_ratio{{{I},of="requests"}}': "0.4x30"}, {f'moneta_hot_key_ratio{{{I},of="requests"}}': "0.01x30"}),
    "MonetaLogInsFail": (f"rate(moneta_authentication_failures_total{RATE}) > 1", "5m", "warning", "log-ins to {{ $labels.instance }} fail", "node",
                         {f"moneta_authentication_failures_total{{{I}}}": "0+120x20"}, {f"moneta_authentication_failures_total{{{I}}}": "0+1x20"}),
    "MonetaTaskFails": ("increase(moneta_task_failures_total[15m]) > 0", "0m", "warning", "the task {{ $labels.task }} of {{ $labels.instance }} fails", "node",
                        {f'moneta_task_failures_total{{{I},task="hints"}}': "0+1x20"}, {f'moneta_task_failures_total{{{I},task="hints"}}': "2x20"}),
    "MonetaFlashOff": ("moneta_flash_off == 1", "0m", "critical", "the SSD tier of {{ $labels.instance }} is off: RAM alone serves", "ssd",
                       {f"moneta_flash_off{{{I}}}": "1x20"}, {f"moneta_flash_off{{{I}}}": "0x20"}),
    "MonetaFlashErrors": ("increase(moneta_flash_io_errors_total[15m]) > 0 or increase(moneta_flash_checksum_failures_total[15m]) > 0", "0m", "critical",
                          "a device of {{ $labels.instance }} fails or returns what was not written", "ssd",
                          {f"moneta_flash_io_errors_total{{{I}}}": "0+1x20"}, {f"moneta_flash_io_errors_total{{{I}}}": "4x20", f"moneta_flash_checksum_failures_total{{{I}}}": "0x20"}),
    "MonetaFlashWearsOut": ("rate(moneta_flash_device_written_bytes_total[6h]) * 86400 / moneta_flash_device_bytes > 3", "6h", "warning",
                            "{{ $labels.instance }} writes its devices more than three times a day", "ssd",
                            {f"moneta_flash_device_written_bytes_total{{{I}}}": "0+60x900", f"moneta_flash_device_bytes{{{I}}}": "10000x900"},
                            {f"moneta_flash_device_written_bytes_total{{{I}}}": "0+6x900", f"moneta_flash_device_bytes{{{I}}}": "10000x900"}),
    "MonetaNodeNotAsked": ("moneta_cluster_node_up == 0", "5m", "critical", "the proxy {{ $labels.instance }} does not ask the node {{ $labels.node }}", "proxy",
                           {f'moneta_cluster_node_up{{{I},app="a",node="m:1",zone="z"}}': "0x20"}, {f'moneta_cluster_node_up{{{I},app="a",node="m:1",zone="z"}}': "1x20"}),
    "MonetaHintsOverflow": ("increase(moneta_cluster_hints_overflowed_total[15m]) > 0", "0m", "warning", "the proxy {{ $labels.instance }} has no room for more hints of {{ $labels.node }}", "proxy",
                            {f'moneta_cluster_hints_overflowed_total{{{I},app="a",node="m:1",zone="z"}}': "0+1x20"}, {f'moneta_cluster_hints_overflowed_total{{{I},app="a",node="m:1",zone="z"}}': "9x20"}),
    "MonetaTopologiesDiffer": ("moneta_cluster_topology_agrees == 0", "10m", "critical", "processes of the app {{ $labels.app }} have different topologies", "proxy",
                               {f'moneta_cluster_topology_agrees{{{I},app="a"}}': "0x30"}, {f'moneta_cluster_topology_agrees{{{I},app="a"}}': "1x30"}),
    "MonetaTopologyUnread": ("moneta_cluster_source_up == 0", "15m", "warning", "{{ $labels.instance }} cannot read its topology", "proxy",
                             {f'moneta_cluster_source_up{{{I},app="a"}}': "0x40"}, {f'moneta_cluster_source_up{{{I},app="a"}}': "1x40"}),
    # One that catches up, a second and a half a second or more, is not told of.
    "MonetaRelayBehind": ("moneta_relay_lag_seconds > 60 and deriv(moneta_relay_lag_seconds[5m]) > -0.5", "5m", "warning",
                          "the relay {{ $labels.instance }} is behind region {{ $labels.region }}, and does not catch up", "relay",
                          {f'moneta_relay_lag_seconds{{{I},region="1"}}': "100+60x30"}, {f'moneta_relay_lag_seconds{{{I},region="1"}}': "3600-60x30"}),
    "MonetaRelayDown": ("moneta_relay_up == 0", "2m", "critical", "the relay {{ $labels.instance }} does not read region {{ $labels.region }}", "relay",
                        {f'moneta_relay_up{{{I},region="1"}}': "0x20"}, {f'moneta_relay_up{{{I},region="1"}}': "1x20"}),
    "MonetaRelayGap": ('sum by (instance, job) (increase(moneta_relay_gaps_total[1h])) > 0 unless sum by (instance, job) (increase(moneta_relay_repairs_total{ended="done"}[1h])) > 0', "5m", "warning",
                       "changes of another region are missing at the relay {{ $labels.instance }}, and no repair has ended since", "relay",
                       {f'moneta_relay_gaps_total{{{I},cause="reclaimed"}}': "0 1x30", f'moneta_relay_repairs_total{{{I},ended="done"}}': "0x30"},
                       {f'moneta_relay_gaps_total{{{I},cause="reclaimed"}}': "0 1x30", f'moneta_relay_repairs_total{{{I},ended="done"}}': "0 0 1x30"}),
    "MonetaRelayLeavesOut": ("increase(moneta_relay_refused_total[15m]) > 0", "0m", "warning", "the relay {{ $labels.instance }} leaves changes out: {{ $labels.reason }}", "relay",
                             {f'moneta_relay_refused_total{{{I},reason="too_large"}}': "0+1x20"}, {f'moneta_relay_refused_total{{{I},reason="too_large"}}': "3x20"}),
    "MonetaRelayProbeSlow": ("histogram_quantile(0.99, sum by (le, instance, job) (rate(moneta_relay_probe_seconds_bucket[15m]))) > 0.4", "10m", "warning",
                             "what is written in another region is read late at {{ $labels.instance }}", "relay",
                             {f'moneta_relay_probe_seconds_bucket{{{I},le="0.1"}}': "0x40", f'moneta_relay_probe_seconds_bucket{{{I},le="1"}}': "0+60x40", f'moneta_relay_probe_seconds_bucket{{{I},le="+Inf"}}': "0+60x40"},
                             {f'moneta_relay_probe_seconds_bucket{{{I},le="0.1"}}': "0+60x40", f'moneta_relay_probe_seconds_bucket{{{I},le="1"}}': "0+60x40", f'moneta_relay_probe_seconds_bucket{{{I},le="+Inf"}}': "0+60x40"}),
    "MonetaRelayGoesBack": ("increase(moneta_relay_probe_older_total[15m]) > 0", "0m", "warning", "reads at {{ $labels.instance }} went back to what is older", "relay",
                            {f"moneta_relay_probe_older_total{{{I}}}": "0+1x20"}, {f"moneta_relay_probe_older_total{{{I}}}": "2x20"}),
    "MonetaSecretExpires": ("moneta_users_secret_expires_seconds - time() < 7 * 86400", "0m", "warning", "a secret of a user of {{ $labels.instance }} ends within a week", "tls",
                            {f"moneta_users_secret_expires_seconds{{{I}}}": "100000x20"}, {f"moneta_users_secret_expires_seconds{{{I}}}": "9000000x20"}),
    "MonetaCertificateExpires": ("moneta_tls_certificate_expires_seconds - time() < 7 * 86400", "0m", "warning", "the certificate of {{ $labels.instance }} expires within a week", "tls",
                                 {f"moneta_tls_certificate_expires_seconds{{{I}}}": "100000x20"}, {f"moneta_tls_certificate_expires_seconds{{{I}}}": "9000000x20"}),
}


def declared():
    """Names of docs/metrics.md, with those that histograms and the scrape add."""
    names = {"up"}
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        row = re.match(r"\| `(moneta_\w+)[^`]*` \| (Histogram)?", line)
        if row:
            name, histogram = row.groups()
            names.add(name)
            if histogram:
                names.update(f"{name}_{end}" for end in ("bucket", "sum", "count"))
    return names


def check_names(what, expression, known):
    for name in set(re.findall(r"\bmoneta_\w+", expression)):
        if name not in known:
            sys.exit(f"{what}: docs/metrics.md has no {name}")


def dashboard():
    panels, number, y = [], 0, 0
    for row, members in DASHBOARD.items():
        number += 1
        panels.append({"id": number, "type": "row", "title": row, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        y += 1
        for place, (title, unit, queries, _) in enumerate(members):
            number += 1
            targets = [{"refId": chr(65 + i), "expr": expression, "legendFormat": legend, "datasource": {"type": "prometheus", "uid": "${datasource}"}}
                       for i, (expression, legend) in enumerate(queries)]
            panels.append({
                "id": number, "type": "timeseries", "title": title, "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
                "gridPos": {"x": place % 3 * 8, "y": y + place // 3 * 8, "w": 8, "h": 8}, "targets": targets})
        y += (len(members) + 2) // 3 * 8
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {"name": "instance", "type": "query", "label": "Process", "datasource": {"type": "prometheus", "uid": "${datasource}"},
         "query": 'label_values(moneta_ready{job="moneta"}, instance)', "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*",
         "current": {"text": "All", "value": "$__all"}},
    ]
    return {"uid": "moneta", "title": "Moneta", "tags": ["moneta"], "schemaVersion": 39, "version": 1, "editable": True, "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "templating": {"list": variables}, "panels": panels}


def rules():
    lines = ["# Made by scripts/monitoring.py. docs/alerts.md says what each alert means, and what to do.", "groups:", "  - name: moneta", "    rules:"]
    for name, (expression, wait, severity, summary, *_) in ALERTS.items():
        lines += [f"      - alert: {name}", f"        expr: {json.dumps(expression)}"]
        lines += [f"        for: {wait}"] if wait != "0m" else []
        lines += ["        labels:", f"          severity: {severity}", "        annotations:", f"          summary: {json.dumps(summary)}",
                  f'          runbook: "docs/alerts.md#{name.lower()}"']
    return "\n".join(lines) + "\n"


def minutes(text):
    return int(text[:-1]) * (60 if text.endswith("h") else 1)


def rule_tests():
    """Each alert fires where it should, and does not where it should not."""
    tests = []
    for name, (_, wait, severity, summary, _, fires, quiet) in ALERTS.items():
        longest = max((len(value.split()) and sum(int(part.split("x")[1]) + 1 if "x" in part else 1 for part in value.split())) for value in fires.values())
        at = max(min(minutes(wait) + 12, longest - 1), minutes(wait) + 1)
        if name in ("MonetaTooSmall",):
            at = 59
        if name == "MonetaFlashWearsOut":
            at = 890
        labels = {"severity": severity}
        series = next(iter(fires))
        kept = "by (instance, job)" in ALERTS[name][0]
        for label, value in re.findall(r'(\w+)="([^"]*)"', series):
            if label != "le" and (not kept or label in ("instance", "job")):
                labels[label] = value
        text = summary
        for label, value in labels.items():
            text = text.replace("{{ $labels.%s }}" % label, value)
        annotations = {"summary": text, "runbook": f"docs/alerts.md#{name.lower()}"}
        for series, expected in ((fires, [{"exp_labels": labels, "exp_annotations": annotations}]), (quiet, [])):
            tests.append({"interval": "1m", "input_series": [{"series": s, "values": v} for s, v in series.items()],
                          "alert_rule_test": [{"eval_time": f"{at}m", "alertname": name, "exp_alerts": expected}]})
    # JSON is YAML, and needs no library.
    return json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}, indent=1) + "\n"


def probes():
    """Queries that must have samples in a scrape of a node, a node with SSD and a proxy under load."""
    all_queries = []
    for row, members in DASHBOARD.items():
        for title, _, queries, who in members:
            for expression, _ in queries:
                asked = expression.replace("$__rate_interval", "30s").replace("$instance", ".*")
                all_queries.append({"of": f"panel {row}: {title}", "query": asked, "who": who})
    for name, (expression, *rest) in ALERTS.items():
        # What the comparison is made on, over a time that the test lasts.
        for part in re.split(r" and | or | unless ", expression):
            asked = re.sub(r"\[\d+[mh]\]", "[30s]", re.sub(r"(==|>=|>|<) .*$", "", part)).strip()
            all_queries.append({"of": f"alert {name}", "query": asked, "who": rest[3]})
    return json.dumps(all_queries, indent=1) + "\n"


def main():
    known = declared()
    for members in DASHBOARD.values():
        for title, _, queries, _ in members:
            for expression, _ in queries:
                check_names(title, expression, known)
    runbook = (ROOT / "docs/alerts.md").read_text()
    for name, (expression, *_) in ALERTS.items():
        check_names(name, expression, known)
        if f"## {name}\n" not in runbook:
            sys.exit(f"docs/alerts.md has no part for {name}")
    for name in re.findall(r"^## (Moneta\w+)$", runbook, re.M):
        if name not in ALERTS:
            sys.exit(f"docs/alerts.md has a part for {name}, which is no alert")
    files = {"dashboard.json": json.dumps(dashboard(), indent=1) + "\n", "rules.yaml": rules(), "rules.test.yaml": rule_tests(), "probes.json": probes()}
    # A chart has all its files within.
    files["../helm/moneta/files/rules.yaml"] = files["rules.yaml"]
    for name, text in files.items():
        path = (FOLDER / name).resolve()
        path.parent.mkdir(exist_ok=True)
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                sys.exit(f"{path.relative_to(ROOT)} is not what scripts/monitoring.py makes: run it")
        else:
            path.write_text(text)


if __name__ == "__main__":
    main()
