#!/usr/bin/env python3
"""Holds deploy/kubernetes to the schemas of Kubernetes: each overlay is put together and validated.

kustomize itself is not asked. What is used of it, resources and patches by name, is merged here; anything else in a
kustomization is a fault. KEDA's ScaledObject is no part of Kubernetes, so its fields are compared with a list. The
configuration in the ConfigMap is given to `refmill config check` where that is built. Also: each path that the
Containerfile copies exists. Needs PyYAML and kubernetes-validate. Exits with 1 at the first fault.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSIONS = ["1.30", "1.33"]
OVERLAYS = ["cpu", "gpu", "mig"]
# Of KEDA 2: what the object and its trigger take of what is used here.
SCALED = {"scaleTargetRef", "pollingInterval", "cooldownPeriod", "minReplicaCount", "maxReplicaCount", "triggers"}
TRIGGER = {"natsServerMonitoringEndpoint", "account", "stream", "consumer", "lagThreshold", "activationLagThreshold"}


def fail(what):
    sys.exit(f"deploy/kubernetes: {what}")


def merged(base, patch):
    """A strategic merge as far as it is needed: maps by key, containers by name, other lists replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merged(base.get(key), patch[key]) if key in patch else base[key] for key in {**base, **patch}}
    if isinstance(base, list) and all(isinstance(item, dict) and "name" in item for item in base + patch):
        return [merged(item, next((new for new in patch if new["name"] == item["name"]), {})) for item in base]
    return patch


def resources(folder):
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {"apiVersion", "kind", "namespace", "resources", "patches"}
    if unknown := set(kustomization) - known:
        fail(f"{folder.name}: this check does not know {sorted(unknown)}")
    found = []
    for name in kustomization["resources"]:
        path = folder / name
        found += resources(path) if path.is_dir() else [yaml.safe_load(path.read_text())]
    for patch in kustomization.get("patches", []):
        patch = yaml.safe_load((folder / patch["path"]).read_text())
        same = [item for item in found if (item["kind"], item["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])]
        if len(same) != 1:
            fail(f"{folder.name}: a patch finds {len(same)} resources")
        found[found.index(same[0])] = merged(same[0], patch)
    for item in found:
        item["metadata"].setdefault("namespace", kustomization.get("namespace"))
    return found


def check_scaled(spec, deployment):
    if set(spec) != SCALED or spec["scaleTargetRef"]["name"] != deployment["metadata"]["name"]:
        fail("the ScaledObject has other fields than KEDA takes, or another target")
    for trigger in spec["triggers"]:
        if trigger["type"] != "nats-jetstream" or set(trigger["metadata"]) != TRIGGER:
            fail("the trigger is none of KEDA's nats-jetstream")
        if not all(isinstance(value, str) for value in trigger["metadata"].values()):
            fail("KEDA takes texts in a trigger's metadata")
    link = (ROOT / "supervisor/src/queue/nats/link.rs").read_text()
    if f'const LAG: &str = "{spec["triggers"][0]["metadata"]["consumer"]}"' not in link:
        fail("the trigger names another consumer than refmill makes")


def check_pod(overlay, items):
    deployment = next(item for item in items if item["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    devices = [name for name in container["resources"]["limits"] if name.startswith("nvidia.com/")]
    if len(devices) != (0 if overlay == "cpu" else 1):
        fail(f"{overlay}: a pod has the devices {devices}")
    config = next(item for item in items if item["kind"] == "ConfigMap")["data"]["refmill.toml"]
    grace = int(re.search(r"^grace_s = (\d+)", config, re.M)[1])
    if grace >= pod["terminationGracePeriodSeconds"]:
        fail("a pod is killed before queue.grace_s is over")
    if not pod["securityContext"]["runAsNonRoot"] or container["securityContext"]["capabilities"] != {"drop": ["ALL"]}:
        fail("a pod is root, or has a capability")
    check_scaled(next(item for item in items if item["kind"] == "ScaledObject")["spec"], deployment)
    return config


def check_config(text):
    program = ROOT / "target/debug/refmill"
    if not program.is_file():
        print("refmill is not built: its configuration is not checked")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        told = subprocess.run([program, "config", "check", file.name], capture_output=True, text=True)
    if told.returncode:
        fail(f"the configuration is refused: {told.stderr}")


def check_containerfile():
    copied = 0
    for line in (HERE / "Containerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for name in line.split()[1:-1]:
                copied += 1
                if not (ROOT / name).exists():
                    fail(f"the Containerfile copies {name}, which does not exist")
    return copied


def main():
    for overlay in OVERLAYS:
        items = resources(HERE / "overlays" / overlay)
        config = check_pod(overlay, items)
        for version in VERSIONS:
            for item in items:
                if item["kind"] == "ScaledObject":
                    continue
                try:
                    kubernetes_validate.validate(item, version, strict=True)
                except Exception as error:
                    fail(f"{overlay}: {item['kind']} in Kubernetes {version}: {error}")
        print(f"{overlay}: {len(items)} resources are sound in Kubernetes {', '.join(VERSIONS)}")
    check_config(config)
    print(f"the Containerfile copies {check_containerfile()} paths that exist; it was not built")


if __name__ == "__main__":
    main()
