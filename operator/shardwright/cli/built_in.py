"""The commands ``models``, ``gpus`` and ``version``: what is built in."""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence

from shardwright import __version__
from shardwright.api.group_version import API_VERSION
from shardwright.cli.named_gpus import nearest_gpus, usual_node
from shardwright.cli.output import (
    IN_A_FILE_COLUMNS,
    Rows,
    Sheet,
    print_document,
    print_lines,
    print_list,
    print_text,
    widest_that_fits,
    width_of_output,
)
from shardwright.hardware.gpus import Gpu, PriceBasis, load_gpus, relative_price, search_ids
from shardwright.hardware.identity import VENDORS
from shardwright.hardware.untrusted import mapping
from shardwright.modelspec.catalogue import (
    Gating,
    find_model,
    gate_of,
    known_ids,
    like_ids,
    listing_of,
)
from shardwright.modelspec.config_json import CONFIG_FILE
from shardwright.modelspec.read import read_model
from shardwright.reporting.lines import Line, paragraph, whole_rows
from shardwright.sinks import in_terminal
from shardwright.units import GIB, TERA

_OTHERS = "any other id is read from the hub"
_TABLES = ("text", "wide")
_SIZES = ("ID", "PARAMS", "GIB", "FORMAT", "LONGEST", "GATED")
_MORE_OF_GPUS = ("VENDOR", "GPUS/NODE", "LINK GB/S")
_ABOUT_FIGURES = (
    "TFLOP/S: of dense products in BF16; PRICE: what an hour of it costs, in hours of an H100, by "
    "public price lists; *: assumed from its data sheet"
)
_OTHER_GPUS = "the labels of nodes with other GPUs are reported, and not planned on"


def list_models(arguments: Namespace) -> None:
    """Print the built-in model ids that contain the searched text."""
    found = [model_id for model_id in known_ids() if _searched(arguments) in model_id.lower()]
    if arguments.output not in _TABLES:
        if not found:
            print_text(in_terminal(_no_model(_searched(arguments))), sys.stderr)
        _print_rows("ModelList", list(map(_model, found)), arguments.output)
        return
    wide = arguments.output == "wide"
    cells = [
        (
            *_sizes(model_id),
            row["released"] or "",
            *((row["architecture"] or "",) if wide else ()),
            *((row["revision"] or "-", _repository(row["source"])) if wide else ()),
        )
        for model_id, row in ((model_id, _model(model_id)) for model_id in found)
    ]
    header = (*_SIZES, "RELEASED")
    header = (*header, *(("ARCHITECTURE", "REVISION", "CONFIG FROM") if wide else ()))
    missing = _no_model(_searched(arguments))
    _print_table(_forms_of_models, header, cells, missing=missing, wide=wide)


def _no_model(searched: str) -> str:
    near = " or ".join(like_ids(searched))
    meant = f"did you mean {near}?" if near else _OTHERS
    return f"no built-in model id contains {searched!r}; {meant}"


def _sizes(model_id: str) -> tuple[str, ...]:
    """Return an id with its model's size, formats, longest request, and whether it is gated."""
    entry = find_model(model_id)
    model = read_model(entry.config, source=model_id) if entry else None
    if model is None:
        return model_id, *[""] * (len(_SIZES) - 1)
    context = model.max_context_tokens
    return (
        model_id,
        _billions(model.parameters),
        f"{model.least_bytes / GIB:,.1f}",
        model.quantization or model.dtype,
        f"{context:,}" if context else "",
        "yes" if gate_of(model_id).gating is Gating.GATED else "",
    )


def _billions(parameters: int) -> str:
    """Return a number of parameters in three digits.

    >>> _billions(8_030_261_248), _billions(1_026_408_232_448)
    ('8.03B', '1,026B')
    """
    count = parameters / 1e9
    return f"{count:,.0f}B" if count >= 100 else f"{count:.3g}B"  # noqa: PLR2004 - three digits


def list_gpus(arguments: Namespace) -> None:
    """Print the GPUs that match the searched text, with the figures that plans use."""
    catalogue = load_gpus()
    gpus = [
        catalogue[gpu_id]
        for gpu_id in search_ids(_searched(arguments))
        if catalogue[gpu_id].vendor in VENDORS.values()
    ]
    if arguments.output not in _TABLES:
        _print_rows("GpuList", [_gpu(gpu) for gpu in gpus], arguments.output)
        return
    wide = arguments.output == "wide"
    header = ("ID", "GIB", "GB/S", "TFLOP/S", "PRICE", "FORMATS", "JOINED BY")
    header = (*header, *(_MORE_OF_GPUS if wide else ()))
    near = " or ".join(nearest_gpus(_searched(arguments)))
    missing = (
        f"no GPU that can be planned has a name with {_searched(arguments)!r} in it; "
        f"{f'did you mean {near}?' if near else _OTHER_GPUS}"
    )
    cells = [(*_cells(gpu), *(_more_cells(gpu) if wide else ())) for gpu in gpus]
    _print_table(_forms_of_gpus, header, cells, missing=missing, wide=wide)
    if gpus:
        width = width_of_output(IN_A_FILE_COLUMNS)
        print_lines([Line(), *paragraph(_ABOUT_FIGURES, width=width)], width=width)


def _repository(source: str | None) -> str:
    """Return where a config was read, without the file's path.

    >>> _repository("github.com/a/b@1 c/d.json"), _repository(None)
    ('github.com/a/b@1', '-')
    """
    return (source or "-").split(maxsplit=1)[0]


def print_version(arguments: Namespace) -> None:
    """Print the version, each engine's built-in versions, and the number of models and GPUs."""
    # Engines load the planner, which the lists do without.
    from shardwright.engines.registry import ENGINES  # noqa: PLC0415

    engines = [
        {"name": tables.engine, "versions": list(tables.versions)}
        for tables in (engine.rules.tables for engine in ENGINES.values())
    ]
    gpus = [gpu for gpu in load_gpus().values() if gpu.vendor in VENDORS.values()]
    known = {"models": len(known_ids()), "gpus": len(gpus)}
    if arguments.output != "wide":
        content = {"version": __version__, "engines": engines, "catalogue": known}
        print_document("Version", content, arguments.output)
        return
    print_text(f"shardwright {__version__}, {API_VERSION}")
    for engine in engines:
        print_text(f"  {engine['name']:<13} {', '.join(engine['versions'])}")
    print_text(f"  {'Models':<13} {known['models']}")
    print_text(f"  {'GPUs':<13} {known['gpus']}")


def _searched(arguments: Namespace) -> str:
    return str(arguments.search or arguments.searched).lower()


def _print_rows(kind: str, rows: Sequence[Mapping[str, object]], form: str) -> None:
    if form != "name":
        print_list(kind, rows, form)
        return
    for row in rows:
        print_text(in_terminal(str(row["id"])))


def _forms_of_models(full: Sheet, _width: int) -> Sequence[Sheet]:
    undated = full.without("RELEASED")
    short = undated.without("LONGEST")
    sized = short.without("FORMAT", "GATED")
    return full, undated, short, short.without("FORMAT"), sized, sized.without("PARAMS")


def _forms_of_gpus(full: Sheet, _width: int) -> Sequence[Sheet]:
    return full, full.without("FORMATS"), full.without("FORMATS", "JOINED BY")


def _print_table(
    forms: Callable[[Sheet, int], Sequence[Sheet]],
    header: Sequence[str],
    cells: Rows,
    *,
    missing: str,
    wide: bool,
) -> None:
    if not cells:
        print_text(in_terminal(missing), sys.stderr)
        return
    width = width_of_output(IN_A_FILE_COLUMNS)
    lines = (
        whole_rows(header, cells)
        if wide
        else widest_that_fits(forms(Sheet(header=header, rows=cells).filled(), width), width=width)
    )
    print_lines(lines, width=width)


def _model(model_id: str) -> dict[str, str | None]:
    entry = find_model(model_id)
    # With a quantization file, or alone.
    config = mapping(entry.config.get(CONFIG_FILE, entry.config)) if entry else {}
    architectures = config.get("architectures")
    named = (
        str(architectures[0]) if isinstance(architectures, list | tuple) and architectures else None
    )
    listing = listing_of(model_id)
    return {
        "id": model_id,
        "architecture": named,
        "source": entry.source if entry else None,
        "revision": entry.revision if entry else None,
        "released": listing.released if listing else None,
    }


def _gpu(gpu: Gpu) -> dict[str, object]:
    link = gpu.scale_up or gpu.host
    price = relative_price(gpu)
    return {
        "id": gpu.id,
        "vendor": gpu.vendor,
        "memoryBytes": gpu.memory_bytes,
        "memoryBytesPerSecond": gpu.memory_bytes_per_second,
        "flops": dict(sorted(gpu.flops.items())),
        "link": link.name,
        "linkBytesPerSecond": link.bytes_per_second,
        "linkGpus": gpu.scale_up_gpus if gpu.scale_up else 1,
        "relativePrice": {
            "h100Hours": price.per_hour,
            "basis": price.basis.value,
            "source": price.source,
        },
        "source": gpu.source,
    }


def _cells(gpu: Gpu) -> tuple[str, ...]:
    bf16 = gpu.flops.get("bf16")
    price = relative_price(gpu)
    joined = f"{gpu.scale_up.name}, up to {gpu.scale_up_gpus}" if gpu.scale_up else gpu.host.name
    return (
        gpu.id,
        f"{gpu.memory_bytes / GIB:.0f}",
        f"{gpu.memory_bytes_per_second / 1e9:,.0f}",
        f"{bf16 / TERA:,.0f}" if bf16 else "-",
        f"{price.per_hour:.2g}{'*' if price.basis is PriceBasis.ASSUMED else ''}",
        ", ".join(sorted(gpu.flops)),
        joined,
    )


def _more_cells(gpu: Gpu) -> tuple[str, ...]:
    node = usual_node(gpu)
    link = gpu.scale_up or gpu.host
    return (gpu.vendor, str(node[0]) if node else "-", f"{link.bytes_per_second / 1e9:,.0f}")
