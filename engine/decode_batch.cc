// What cannot share a pass (windows to rebuild, a pass that ran out of memory) runs alone.
#include "engine/decode_batch.h"

#include <algorithm>
#include <new>
#include <string>

#include "engine/runtime.h"
#include "engine/sequence.h"

namespace cairn::engine {

namespace {

// The error that a step for one row ended with.
template <class Step>
Status guarded(const Step& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return {StatusCode::kOutOfMemory, "out of memory in a decode step",
            "free memory, then resume the turn"};
  } catch (const std::exception& e) {
    return internal_error(std::string("a decode step failed: ") + e.what());
  }
}

}  // namespace

class DecodeBatch {
 public:
  DecodeBatch(std::span<DecodeRow> rows, StepMemory& memory) : scope_(memory), rows_(&memory) {
    rows_.reserve(rows.size());
    for (DecodeRow& row : rows) {
      if (row.status.ok() && is_plain_decode(row.sequence->plan_)) rows_.push_back(&row);
    }
  }

  // Where it does not come to its end, rows are left as they were, or are stopped.
  void run() {
    if (rows_.size() < 2) return;
    StepVector<ForwardInput> inputs(rows_.get_allocator());
    inputs.reserve(rows_.size());
    for (DecodeRow* row : rows_) {
      inputs.push_back(row->sequence->step_input(1));
      row->sequence->save_step(1);
    }
    bool is_done = false, is_stopped = false;
    try {
      for (DecodeRow* row : rows_) row->sequence->ready_ = false;
      const LoadedModel& model = rows_.front()->sequence->model();
      is_done = forward(model, model.runtime()->compute(), inputs, model.activations(),
                        [this] { return all_ask_to_stop(); });
      is_stopped = !is_done;
    } catch (...) {  // for want of memory, perhaps of one row only
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Sequence& sequence = *rows_[i]->sequence;
      if (is_done) {
        rows_[i]->status = guarded([&] {
          sequence.end_step(1);
          return Status();
        });
        continue;
      }
      sequence.undo_step(/*was_ready=*/true);
      sequence.logits_rows_.clear();
      if (is_stopped) stopped(*rows_[i]);
    }
  }

  static void stopped(DecodeRow& row) {
    row.sequence->abandon_prefill();
    row.status = {StatusCode::kCancelled, "the pass was asked to stop"};
  }

 private:
  bool all_ask_to_stop() const {
    return std::ranges::all_of(
        rows_, [](const DecodeRow* row) { return row->stop_requested && row->stop_requested(); });
  }

  const StepMemory::Scope scope_;
  StepVector<DecodeRow*> rows_;  // that share the pass
};

namespace {

// The pass that was planned for the row.
void run_alone(DecodeRow& row) {
  bool is_stopped = false;
  row.status = guarded([&] {
    while (row.sequence->prefilling() && !is_stopped) {
      is_stopped = !row.sequence->prefill_step(row.stop_requested);
    }
    return Status();
  });
  if (is_stopped) DecodeBatch::stopped(row);
}

}  // namespace

void decode_together(std::span<DecodeRow> rows) {
  if (rows.empty()) return;
  for (DecodeRow& row : rows) {
    row.status = guarded([&] { return row.sequence->start_prefill({&row.token, 1}); });
  }
  Activations& a = rows[0].sequence->model().activations();
  const auto n_max = static_cast<std::size_t>(a.max_rows);
  for (auto rest = rows; !rest.empty(); rest = rest.subspan(std::min(rest.size(), n_max))) {
    (void)guarded([&] {  // at worst nothing is done yet
      DecodeBatch(rest.first(std::min(rest.size(), n_max)), a.memory).run();
      return Status();
    });
  }
  for (DecodeRow& row : rows) {
    if (row.status.ok() && row.sequence->prefilling()) run_alone(row);
  }
}

}  // namespace cairn::engine
