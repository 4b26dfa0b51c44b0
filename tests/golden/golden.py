"""The golden file format: named tensors, read by golden.h and by tests/bench/pytorch_step.py.

All numbers are little endian.

    8 bytes   "MPGOLDEN"
    uint32    format version, 1
    uint32    number of tensors
    per tensor:
      uint32  length of its name in bytes, without padding
      bytes   the name, padded with zero bytes to a multiple of 4
      uint32  type: 0 float32, 1 int32
      uint32  number of dimensions
      uint32  each dimension, slowest first
      data    row major, 4 bytes per element

Nothing follows the last tensor.  Every field starts at a multiple of 4 bytes.
"""

import struct

import torch

MAGIC = b"MPGOLDEN"
VERSION = 1
TYPES = {0: (torch.float32, "<f4"), 1: (torch.int32, "<i4")}


def write(path, tensors):
    """Writes {name: tensor}; floating tensors become float32, others int32."""
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<II", VERSION, len(tensors)))
        for name, tensor in tensors.items():
            kind = 0 if tensor.is_floating_point() else 1
            torch_type, numpy_type = TYPES[kind]
            encoded = name.encode()
            file.write(struct.pack("<I", len(encoded)) + encoded + b"\0" * (-len(encoded) % 4))
            file.write(struct.pack("<II", kind, tensor.dim()))
            file.write(struct.pack(f"<{tensor.dim()}I", *tensor.shape))
            array = tensor.detach().to(torch_type).contiguous().numpy()
            file.write(array.astype(numpy_type, copy=False).tobytes())


def read(path):
    """Returns {name: tensor} of a golden file."""
    with open(path, "rb") as file:
        content = file.read()
    version, count = struct.unpack_from("<II", content, len(MAGIC))
    if content[: len(MAGIC)] != MAGIC or version != VERSION:
        raise ValueError(f"{path}: not a golden file of version {VERSION}")
    offset = len(MAGIC) + 8
    tensors = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<I", content, offset)
        name = content[offset + 4 : offset + 4 + length].decode()
        offset += 4 + length + -length % 4
        kind, dimensions = struct.unpack_from("<II", content, offset)
        shape = struct.unpack_from(f"<{dimensions}I", content, offset + 8)
        offset += 8 + 4 * dimensions
        elements = 1
        for size in shape:
            elements *= size
        torch_type, _ = TYPES[kind]
        data = bytearray(content[offset : offset + 4 * elements])
        tensors[name] = torch.frombuffer(data, dtype=torch_type).reshape(shape)
        offset += 4 * elements
    return tensors
