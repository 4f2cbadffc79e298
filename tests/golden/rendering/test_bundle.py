"""One bundle as YAML, to be read by a person: Llama-3.1-405B on two nodes of eight H100."""

from pathlib import Path

import yaml

from shardwright.rendering.deployment import SecretKey
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan

GOLDEN = Path(__file__).parent / "llama-405b.yaml"


class _Readable(yaml.SafeDumper):
    """Writes scripts as block text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  the dumper's own signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def test_the_bundle_of_a_model_on_two_nodes_is_the_one_that_was_read(update_goldens: bool) -> None:  # noqa: FBT001  a fixture
    deployment = a_deployment(hub_token=SecretKey(name="hub", key="token"), arguments={"enable-prefix-caching": True})
    objects = [dict(item) for item in render(a_plan(), deployment).objects]
    text = yaml.dump_all(objects, Dumper=_Readable, sort_keys=False, width=160)
    if update_goldens:
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
