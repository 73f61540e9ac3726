#!/usr/bin/env python3
"""Writes a source with a function for every symbol that torch's libraries import of the CUDA
runtime, of the driver, of cuBLAS and of NCCL, and that the emulated device does not define:
cuBLAS's say that they have succeeded (a product more that is not computed), all others that they
are not supported. What is called of them is logged where PUDICA_EMULATED_LOG asks for it.
"""

import argparse
import pathlib
import re
import subprocess

LIBRARIES = ("c10_cuda", "torch_cuda", "torch_cuda_linalg", "torch_python", "caffe2_nvrtc",
             "torch_nvshmem")
EMULATED = re.compile(r"^(__cuda|cuda[A-Z]|cublas|cu[A-Z]|nccl[A-Z])")
LEFT_ALONE = re.compile(r"^cuFile")  # a library of its own
SUCCESS, NOT_SUPPORTED, NCCL_INVALID_USAGE = 0, 801, 5


def status_of(name):
    if name.startswith("cublas"):
        return SUCCESS
    return NCCL_INVALID_USAGE if name.startswith("nccl") else NOT_SUPPORTED


def symbols(nm, flags, path):
    """Names of a library or object, without versions."""
    done = subprocess.run([nm, *flags, str(path)], check=True, capture_output=True, text=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.strip()}


def imported(nm, folder):
    found = set()
    for name in LIBRARIES:
        path = folder / f"lib{name}.so"
        if path.exists():
            found |= symbols(nm, ["-D", "--undefined-only"], path)
    return {name for name in found if EMULATED.match(name) and not LEFT_ALONE.match(name)}


def source(names):
    # Without the headers of CUDA, which declare the same names with what they are called with.
    lines = ["// Written by make_stubs.py.",
             "namespace pudica::emulated {", "void log_once(const char* name);", "}", "",
             'extern "C" {']
    for name in sorted(names):
        lines.append(f"int {name}() {{ pudica::emulated::log_once(\"{name}\"); "
                     f"return {status_of(name)}; }}")
    return "\n".join([*lines, "}", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--torch-lib", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("objects", nargs="+", help="what the emulated device defines")
    options = parser.parse_args()
    defined = set()
    for path in options.objects:
        defined |= symbols(options.nm, ["--defined-only"], path)
    names = imported(options.nm, options.torch_lib) - defined
    options.out.write_text(source(names), encoding="ascii")


if __name__ == "__main__":
    main()
