"""The settings as the chart delivers them, with what is said otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

IMAGE: Final = "registry.example/shardwright/operator"
SETTINGS: Final = "ConfigMap/shardwright-settings data.settings.json"
OPEN = {
    "clients": [],
    "egress": {"restricted": False, "rules": []},
    "enabled": True,
    "metrics": [],
}


def settings_text(
    defaults: dict[str, Any],
    admitted: list[str],
    classes: Sequence[str] = ("nvidia",),
    *,
    priorities: Mapping[str, Sequence[str]] | None = None,
    limits: Mapping[str, Mapping[str, int]] | None = None,
    gpus: Sequence[Mapping[str, Any]] = (),
    pools: Sequence[Mapping[str, Any]] = (),
    policy: Mapping[str, Any] | None = None,
    executors: Sequence[str] = (),
    on_upgrade: str = "Keep",
    **further: Any,
) -> str:
    content = {
        "admittedAttachmentNamespaces": [],
        "admittedEnvironment": [],
        "admittedImages": ["*"],
        "admittedLockMemory": [],
        "admittedSecretVolumes": {},
        "admittedPodKeys": [],
        "admittedServiceAccounts": {},
        "admittedModels": ["*"],
        "gpuHourPrices": {},
        "requireRevision": "Off",
        "trustedLabelPrefix": "",
        "nodeSet": "",
        "admittedArguments": admitted,
        "admittedExecutors": executors,
        "admittedPriorityClasses": priorities or {},
        "admittedRuntimeClasses": classes,
        "autoscaledPools": pools,
        "engineDefaults": defaults,
        "gpus": gpus,
        "namespaceLimits": limits or {},
        "networkPolicy": {**OPEN, **(policy or {})},
        "rollout": {"onUpgrade": on_upgrade},
        "configFetch": {"enabled": True},
    }
    return json.dumps(content | further, indent=2, sort_keys=True) + "\n"
