#include "tests/golden_runner/runner.h"
namespace cairn::golden {
Status compare_layers(const ModelPtr&, const CaseFile&, Agreement&) { return {}; }
}  // namespace cairn::golden
