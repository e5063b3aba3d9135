#include "kernels/tensor_view.h"
