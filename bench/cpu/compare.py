"""Compares tensors with the reference, so that a benchmark compares equal work. Needs numpy.

    compare.py hint|clip REFERENCE.npy TENSORS     TENSORS is a .safetensors file, or raw little endian f32 (.f32)

Prints the PSNR in dB over values brought back to 0..1, and the largest difference in codes of 255.
"""

import json
import sys

import numpy

STD = numpy.array([0.26862954, 0.26130258, 0.27577711], numpy.float32)


def read(path, name, shape):
    data = open(path, "rb").read()
    if path.endswith(".safetensors"):
        length = int.from_bytes(data[:8], "little")
        entry = json.loads(data[8 : 8 + length])[name]
        assert entry["dtype"] == "F32", entry
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        found = numpy.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])[0]
    else:
        found = numpy.frombuffer(data, "<f4").reshape(shape)
    assert found.shape == shape, f"{path} has the shape {found.shape}, the reference {shape}"
    return found


def main():
    name, reference, path = sys.argv[1:]
    wanted = numpy.load(reference)
    found = read(path, name, wanted.shape)
    # One unit of the tensor in units of 0..1, a channel.
    unit = STD[:, None, None] if name == "clip" else numpy.float32(0.5)
    difference = (found - wanted) * unit
    error = float(numpy.mean(difference.astype(numpy.float64) ** 2))
    psnr = min(99.0, -10 * numpy.log10(max(error, 1e-12)))
    print(json.dumps({"psnr": round(float(psnr), 1), "worst": round(float(numpy.abs(difference).max() * 255), 1)}))


if __name__ == "__main__":
    main()
