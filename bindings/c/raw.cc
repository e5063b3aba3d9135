// The C ABI of cairn_raw.h over include/cairn/raw.h.
#include "cairn/raw.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/c/handles.h"
#include "cairn/cairn_raw.h"

using cairn::Status;
using cairn::c_api::cleared;
using cairn::c_api::destroy;
using cairn::c_api::give;
using cairn::c_api::guarded;
using cairn::c_api::required;

struct cairn_raw_sequence {
  cairn::RawSequence rep;
};

extern "C" {

cairn_code cairn_raw_sequence_create(const cairn_model* model, cairn_raw_sequence** sequence,
                                     cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(sequence, "sequence"));
    CAIRN_RETURN_IF_ERROR(required(model, "model"));
    CAIRN_ASSIGN_OR_RETURN(cairn::RawSequence created, cairn::RawSequence::create(model->rep));
    return give(sequence, std::move(created));
  });
}

cairn_code cairn_raw_sequence_append(cairn_raw_sequence* sequence, const int32_t* tokens,
                                     size_t n_tokens, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(sequence, "sequence"));
    if (n_tokens == 0) return {};
    CAIRN_RETURN_IF_ERROR(required(tokens, "tokens"));
    return sequence->rep.append({tokens, tokens + n_tokens});
  });
}

void cairn_raw_sequence_cancel(cairn_raw_sequence* sequence) {
  if (sequence != nullptr) sequence->rep.cancel();
}

int64_t cairn_raw_sequence_position(const cairn_raw_sequence* sequence) {
  return sequence == nullptr ? 0 : sequence->rep.position();
}

cairn_code cairn_raw_sequence_logits(const cairn_raw_sequence* sequence, float* logits,
                                     size_t n_logits, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(sequence, "sequence"));
    CAIRN_RETURN_IF_ERROR(required(logits, "logits"));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> values, sequence->rep.logits());
    if (n_logits < values.size()) {
      return cairn::invalid_argument("there is room for " + std::to_string(n_logits) +
                                     " logits, the model has " + std::to_string(values.size()));
    }
    std::copy(values.begin(), values.end(), logits);
    return {};
  });
}

void cairn_raw_sequence_destroy(cairn_raw_sequence** sequence) { destroy(sequence); }

}  // extern "C"
