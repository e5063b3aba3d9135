"""Settings of OpenBLAS, which reads them once: import this before numpy and torch.

One thread a process, because the training has processes of its own. And the kind of processor:
Debian's OpenBLAS 0.3.21 takes one that it does not know for the oldest one, at a quarter of the
speed.
"""

import os
import pathlib

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
_flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split("flags", 1)[-1].split()
if "avx512f" in _flags:
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
elif "avx2" in _flags:
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
