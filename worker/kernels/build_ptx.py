#!/usr/bin/env python3
"""Compiles each .cu file here to PTX with NVRTC, which needs no GPU; the standard library is enough.

    python3 -m pip install nvidia-cuda-nvrtc-cu12==12.0.140
    worker/kernels/build_ptx.py            writes the .ptx files
    worker/kernels/build_ptx.py --check    exits with 1 if a committed .ptx file is stale

One release of NVRTC is fixed: it gives the same bytes for the same source, and its PTX ISA 8.0 is read by every
driver from 525 (CUDA 12.0) on. Newer releases give PTX that older drivers refuse.
"""

import argparse
import ctypes
import pathlib
import site
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
SOURCES = sorted(FOLDER.glob("*.cu"))
RELEASE = (12, 0)
OPTIONS = [b"--gpu-architecture=compute_70", b"--std=c++14"]


def find(given):
    folders = [pathlib.Path(p) for p in [*sys.path, *site.getsitepackages(), site.getusersitepackages()] if p]
    places = [given] if given else [f / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12" for f in folders]
    for place in places:
        if pathlib.Path(place).is_file():
            return ctypes.CDLL(str(place))
    sys.exit("libnvrtc.so.12 is not there: install nvidia-cuda-nvrtc-cu12==12.0.140, or name it with --nvrtc")


def check(nvrtc, status, what):
    if status != 0:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit(f"{what}: {nvrtc.nvrtcGetErrorString(status).decode()}")


def text(nvrtc, program, name):
    size = ctypes.c_size_t()
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size)), name)
    buffer = ctypes.create_string_buffer(size.value)
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{name}")(program, buffer), name)
    return buffer.value


def check_release(nvrtc):
    major, minor = ctypes.c_int(), ctypes.c_int()
    check(nvrtc, nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    if (major.value, minor.value) != RELEASE:
        sys.exit(f"NVRTC is {major.value}.{minor.value}, the kernels are built with {RELEASE[0]}.{RELEASE[1]}")


def compile_ptx(nvrtc, path):
    program = ctypes.c_void_p()
    source, name = path.read_bytes(), path.name.encode()
    check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None), "nvrtcCreateProgram")
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    status = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    log = text(nvrtc, program, "ProgramLog").decode(errors="replace").strip()
    if log:
        print(log, file=sys.stderr)
    check(nvrtc, status, f"compiling {path.name}")
    return text(nvrtc, program, "PTX")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    parser.add_argument("--nvrtc", help="path of libnvrtc.so.12")
    arguments = parser.parse_args()
    nvrtc = find(arguments.nvrtc)
    check_release(nvrtc)
    stale = []
    for source in SOURCES:
        ptx, target = compile_ptx(nvrtc, source), source.with_suffix(".ptx")
        if not arguments.check:
            target.write_bytes(ptx)
            print(f"{target.name}: {len(ptx)} bytes")
        elif not target.is_file() or target.read_bytes() != ptx:
            stale.append(target.name)
        else:
            print(f"{target.name} is up to date")
    if stale:
        sys.exit(f"{', '.join(stale)}: stale, run {pathlib.Path(__file__).name}")


if __name__ == "__main__":
    main()
