#!/usr/bin/env python3
"""Writes refmill.json, the Grafana dashboard of refmill's figures; with --check, says whether it is what it would write.

    deploy/grafana/make.py [--check]
"""

import json
import sys
from pathlib import Path

SOURCE = {"type": "prometheus", "uid": "${source}"}
OF = 'instance=~"$instance"'

# Title, unit, and what is drawn: an expression and the words of its legend.
PANELS = [
    ("Jobs that ended, by outcome", "ops", [(f"sum by (outcome) (rate(refmill_jobs_total{{{OF}}}[5m]))", "{{outcome}}")]),
    ("Queue, by state", "short", [(f"max by (state) (refmill_queue_jobs{{{OF}}})", "{{state}}")]),
    ("Age of the oldest job", "s", [(f"max by (state) (refmill_queue_oldest_seconds{{{OF}}})", "{{state}}")]),
    ("Rejected, by code", "ops", [(f"sum by (code, blame) (rate(refmill_rejects_total{{{OF}}}[5m]))", "{{code}} ({{blame}})")]),
    ("Tried again, by code", "ops", [(f"sum by (code) (rate(refmill_retries_total{{{OF}}}[5m]))", "{{code}}")]),
    ("Time in hand", "s", [
        (f"histogram_quantile({q}, sum by (le) (rate(refmill_job_seconds_bucket{{{OF}}}[5m])))", f"p{int(q * 100)}")
        for q in (0.5, 0.95, 0.99)
    ]),
    ("Time in the queue", "s", [
        (f"histogram_quantile({q}, sum by (le) (rate(refmill_job_wait_seconds_bucket{{{OF}}}[5m])))", f"p{int(q * 100)}")
        for q in (0.5, 0.95)
    ]),
    ("Stages, 95th percentile", "s", [
        (f"histogram_quantile(0.95, sum by (le, stage) (rate(refmill_stage_seconds_bucket{{{OF}}}[5m])))", "{{stage}}"),
    ]),
    ("Findings, by code", "ops", [
        (f'sum by (code) (rate(refmill_findings_total{{{OF}, severity!="info"}}[5m]))', "{{code}}"),
    ]),
    ("Bytes", "Bps", [
        (f"sum(rate(refmill_input_bytes_total{{{OF}}}[5m]))", "inputs"),
        (f"sum by (kind) (rate(refmill_artifact_bytes_total{{{OF}}}[5m]))", "{{kind}}"),
    ]),
    ("Pixels a second, and uploads", "short", [
        (f"sum(rate(refmill_pixels_total{{{OF}}}[5m]))", "pixels"),
        (f"sum(rate(refmill_uploads_total{{{OF}}}[5m]))", "uploads"),
    ]),
    ("Workers replaced", "short", [
        (f"sum(increase(refmill_worker_recycles_total{{{OF}}}[1h]))", "replaced"),
        (f"sum(increase(refmill_worker_recycles_refused_total{{{OF}}}[1h]))", "kept over their mark"),
        (f"sum(increase(refmill_slots_lost_total{{{OF}}}[1h]))", "slots lost"),
        (f"sum(increase(refmill_leases_lost_total{{{OF}}}[1h]))", "leases lost"),
    ]),
    ("Tenants", "short", [(f"max by (tenant, state) (refmill_tenant_jobs{{{OF}}})", "{{tenant}} {{state}}")]),
    ("GPU memory that tenants' jobs may need", "bytes", [
        (f"max by (tenant) (refmill_tenant_gpu_memory_bytes{{{OF}}})", "{{tenant}}"),
    ]),
    ("Confinement: layers with a gap", "short", [(f"max by (layer) (refmill_sandbox_gap{{{OF}}})", "{{layer}}")]),
    ("Supervisor's memory", "bytes", [(f"refmill_supervisor_memory_bytes{{{OF}}}", "{{instance}}")]),
]


def panel(number, title, unit, targets):
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": number % 2 * 12, "y": number // 2 * 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(targets)
        ],
    }


def dashboard():
    variables = [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"},
        {
            "name": "instance",
            "type": "query",
            "label": "Supervisor",
            "datasource": SOURCE,
            "query": {"query": "label_values(refmill_build, instance)", "refId": "instances"},
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        },
    ]
    return {
        "uid": "refmill",
        "title": "refmill",
        "tags": ["refmill"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": [panel(number, *each) for number, each in enumerate(PANELS)],
    }


def main():
    file = Path(__file__).with_name("refmill.json")
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        if file.read_text() != text:
            sys.exit("deploy/grafana/refmill.json is not what deploy/grafana/make.py writes")
    else:
        file.write_text(text)


if __name__ == "__main__":
    main()
