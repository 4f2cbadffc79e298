"""The settings as the chart delivers them, with what is said otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

IMAGE: Final = "registry.example/shardwright/operator"
SETTINGS: Final = "ConfigMap/shardwright-settings data.settings.json"
OPEN = {"clients": [], "egress": {"restricted": False, "rules": []}, "enabled": True, "metrics": []}

POLICY: Final[Mapping[str, Any]] = {
    "admittedArguments": [],
    "admittedAttachmentNamespaces": [],
    "admittedEnvironment": [],
    "admittedExecutors": [],
    "admittedImages": ["*"],
    "admittedLockMemory": [],
    "admittedModels": ["*"],
    "admittedPodKeys": [],
    "admittedPriorityClasses": {},
    "admittedRuntimeClasses": ["nvidia"],
    "admittedSecretVolumes": {},
    "admittedServiceAccounts": {},
    "admittedTraceCollectors": [],
    "namespaceLimits": {},
    "requireRevision": "Off",
}


def settings_text(
    defaults: dict[str, Any],
    policy: Mapping[str, Any] | None = None,
    *,
    gpus: Sequence[Mapping[str, Any]] = (),
    pools: Sequence[Mapping[str, Any]] = (),
    network: Mapping[str, Any] | None = None,
    on_upgrade: str = "Keep",
    **further: Any,
) -> str:
    content = {
        "gpuHourPrices": {},
        "trustedLabelPrefix": "",
        "nodeSet": "",
        "taintStates": {},
        "rdmaResources": [],
        "autoscaledPools": pools,
        "engineDefaults": defaults,
        "gpus": gpus,
        "networkPolicy": {**OPEN, **(network or {})},
        "policy": {**POLICY, **(policy or {})},
        "rollout": {"onUpgrade": on_upgrade},
        "configFetch": {"enabled": True},
        "provenImagesFirst": False,
        "prometheus": {"url": ""},
        "router": {"image": ""},
    }
    return json.dumps(content | further, indent=2, sort_keys=True) + "\n"
