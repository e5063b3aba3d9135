"""Checkpoints in the released layout: safetensors files, config.json, tensor names and dtypes.

`save` writes what checkpoint.md describes from a dictionary of f32 arrays, `load` reads it back
dequantised. Routed experts of a layer are one array [experts, out, in] on our side.
"""

import json
import pathlib
import re
import struct
from typing import Dict

import numpy as np

import formats

_DTYPES = {
    "F32": np.float32, "BF16": np.uint16, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8, "I8": np.uint8,
}
_FP8_DENSE = re.compile(
    r"(wq_a|wq_b|attn\.wkv|wo_a|wo_b|shared_experts\.w[123]|engram\.wkv|main_proj)$"
)
_F32 = re.compile(r"(hc_(attn|ffn)_(fn|base|scale)|attn_sink|gate\.bias|gate\.bias_vl)$")
_EXPERT = re.compile(r"^(.*ffn)\.experts\.(\d+)\.(w[123])\.weight$")


def read_safetensors(path: pathlib.Path) -> Dict[str, tuple]:
    """Tensors of one file as (dtype name, array)."""
    blob = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(blob[begin:end], dtype=_numpy_dtype(entry["dtype"]))
        tensors[name] = (entry["dtype"], array.reshape(entry["shape"]))
    return tensors


def _numpy_dtype(name: str):
    others = {"I32": np.int32, "I16": np.int16, "I64": np.int64, "U8": np.uint8}
    return _DTYPES.get(name) or others[name]


def write_safetensors(path: pathlib.Path, tensors: Dict[str, tuple]) -> int:
    """Writes (dtype name, array) pairs; returns the payload bytes."""
    header, offset = {}, 0
    for name, (dtype, array) in tensors.items():
        end = offset + array.nbytes
        header[name] = dict(dtype=dtype, shape=list(array.shape), data_offsets=[offset, end])
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())
    return offset


def _encoded(name: str, array: np.ndarray) -> Dict[str, tuple]:
    """What is stored for one parameter of the model."""
    array = np.asarray(array, dtype=np.float32)
    stem = name[: -len(".weight")] if name.endswith(".weight") else name
    if _F32.search(name):
        return {name: ("F32", array)}
    if name.endswith("engram.embed.weight"):
        codes, scales = formats.fp8_weight(array, rows=1)
    elif _FP8_DENSE.search(stem):
        codes, scales = formats.fp8_weight(array)
    else:
        return {name: ("BF16", formats.bf16_bits(array))}
    return {stem + ".weight": ("F8_E4M3", codes), stem + ".scale": ("F8_E8M0", scales)}


def _encoded_experts(name: str, experts: np.ndarray) -> Dict[str, tuple]:
    """`ffn.experts.w1` [experts, out, in] as the tensors of its experts."""
    prefix, matrix = name.rsplit(".", 1)
    out = {}
    for index, weight in enumerate(experts):
        packed, scales = formats.fp4_weight(np.asarray(weight, dtype=np.float32))
        out[f"{prefix}.{index}.{matrix}.weight"] = ("I8", packed)
        out[f"{prefix}.{index}.{matrix}.scale"] = ("F8_E8M0", scales)
    return out


def encode(parameters: Dict[str, np.ndarray]) -> Dict[str, tuple]:
    """All tensors of a checkpoint from the parameters of the model."""
    tensors = {}
    for name, array in parameters.items():
        if re.search(r"ffn\.experts\.w[123]$", name):
            tensors.update(_encoded_experts(name, array))
        else:
            tensors.update(_encoded(name, array))
    return tensors


def decode(tensors: Dict[str, tuple]) -> Dict[str, np.ndarray]:
    """The parameters of the model from the tensors of a checkpoint."""
    parameters, experts = {}, {}
    for name, (dtype, array) in tensors.items():
        if name.endswith(".scale") and dtype == "F8_E8M0":
            continue
        if dtype == "F32":
            value = array
        elif dtype == "BF16":
            value = formats.from_bf16_bits(array)
        elif dtype == "F8_E4M3":
            value = formats.fp8_weight_values(array, tensors[name[:-7] + ".scale"][1])
        else:
            value = formats.fp4_weight_values(array, tensors[name[:-7] + ".scale"][1])
        expert = _EXPERT.match(name)
        if expert:
            key = f"{expert[1]}.experts.{expert[3]}"
            experts.setdefault(key, {})[int(expert[2])] = value
        else:
            parameters[_own_name(name)] = value
    for key, matrices in experts.items():
        parameters[key] = np.stack([matrices[i] for i in range(len(matrices))])
    return parameters


def _own_name(name: str) -> str:
    """FP8 matrices drop `.weight`, as their module is one parameter here."""
    stem = name[: -len(".weight")] if name.endswith(".weight") else name
    return stem if _FP8_DENSE.search(stem) else name


def text_config(config) -> dict:
    """`text_config` of config.json for a Config."""
    text = dict(vars(config))
    n_stages = config.num_nextn_predict_layers
    text["compress_ratios"] = list(config.compress_ratios) + [0] * n_stages
    if n_stages == 0:
        text = {key: value for key, value in text.items() if not key.startswith("dspark_")}
    text.update(
        model_type="deepseek_v41_text", num_key_value_heads=1, hidden_act="silu",
        attention_bias=False, attention_dropout=0.0, initializer_range=0.02, use_cache=True,
        tie_word_embeddings=False, n_shared_experts=1, scoring_func="sqrtsoftplus",
        topk_method="noaux_tc", norm_topk_prob=True,
    )
    return text


def save(folder: pathlib.Path, config, parameters: Dict[str, np.ndarray], image_id: int) -> int:
    """Writes config.json and model.safetensors; returns the payload bytes.

    `image_id` is a token that no text contains: the release has one, its checks want one.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    top = dict(
        architectures=["DeepseekV41ForCausalLM"], model_type="deepseek_v41", dtype="bfloat16",
        image_token_id=image_id, bos_token_id=0, eos_token_id=1, pad_token_id=2,
        quantization_config=dict(
            quant_method="fp8", activation_scheme="dynamic", weight_block_size=[32, 32],
            scale_fmt="ue8m0", expert_dtype="fp4",
        ),
        text_config=text_config(config),
    )
    (folder / "config.json").write_text(json.dumps(top, indent=1) + "\n", encoding="utf-8")
    return write_safetensors(folder / "model.safetensors", encode(parameters))


def load(folder: pathlib.Path) -> Dict[str, np.ndarray]:
    """The dequantised parameters of a checkpoint folder."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors.update(read_safetensors(path))
    return decode(tensors)
