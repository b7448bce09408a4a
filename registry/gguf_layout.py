"""Tables of the GGUF format: types of values, of tensors and of files.

From the specification (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) and ggml's own type traits.
"""

from typing import Final

# value type -> (struct code, bytes); strings and arrays are handled apart
SCALARS: Final[dict[int, tuple[str, int]]] = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}
STRING: Final = 8
ARRAY: Final = 9

# tensor type -> (name, elements in a block, bytes of a block)
TENSOR_TYPES: Final[dict[int, tuple[str, int, int]]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

FILE_TYPES: Final[dict[int, str]] = {
    **dict(enumerate("F32 F16 Q4_0 Q4_1".split())),
    **dict(enumerate("Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K".split(), 7)),
    **dict(enumerate("IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS".split(), 19)),
    **dict(enumerate("IQ1_M BF16".split(), 31)),
    **dict(enumerate("TQ1_0 TQ2_0 MXFP4_MOE NVFP4 Q1_0".split(), 36)),
}

# what `pooling_type` means; 0 is none
POOLING: Final[dict[int, str]] = {1: "mean", 2: "cls", 3: "last", 4: "rank"}
