// What cannot share a pass (windows to rebuild, a pass that ran out of memory) runs alone.
#include "engine/decode_batch.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <string>

#include "engine/draft_schedule.h"
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
    if (rows_.empty()) return;
    StepVector<ForwardInput> inputs(rows_.get_allocator());
    inputs.reserve(rows_.size());
    for (DecodeRow* row : rows_) {
      inputs.push_back(row->sequence->step_input(n_rows(*row)));
      row->sequence->save_step(n_rows(*row));
    }
    bool is_done = false, is_stopped = false;
    const Clock::time_point start = Clock::now();
    try {
      for (DecodeRow* row : rows_) row->sequence->ready_ = false;
      const LoadedModel& model = rows_.front()->sequence->model();
      is_done = forward(model, model.runtime()->compute(), inputs, model.activations(),
                        [this] { return all_ask_to_stop(); });
      is_stopped = !is_done;
    } catch (...) {  // for want of memory, perhaps of one row only
    }
    if (is_done) {
      note_times(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Sequence& sequence = *rows_[i]->sequence;
      if (is_done) {
        rows_[i]->status = guarded([&] {
          if (rows_[i]->drafts.empty()) {
            sequence.end_step(1);
          } else {
            sequence.end_verify();
          }
          return Status();
        });
        continue;
      }
      sequence.undo_step(/*was_ready=*/true);
      sequence.logits_rows_.clear();
      if (is_stopped) stopped(*rows_[i]);
    }
  }

  static std::int64_t n_rows(const DecodeRow& row) {
    return 1 + static_cast<std::int64_t>(row.drafts.size());
  }

  static Status plan(DecodeRow& row) {
    const auto n_most = static_cast<std::size_t>(row.sequence->max_drafts());
    row.drafts = row.drafts.first(std::min(row.drafts.size(), n_most));
    return guarded([&] {
      return row.drafts.empty() ? row.sequence->start_prefill({&row.token, 1})
                                : row.sequence->start_verify(row.token, row.drafts);
    });
  }

  static void stopped(DecodeRow& row) {
    row.sequence->abandon_prefill();
    row.status = {StatusCode::kCancelled, "the pass was asked to stop"};
  }

 private:
  using Clock = std::chrono::steady_clock;

  void note_times(double ms) {
    StepTimes& times = rows_.front()->sequence->model().step_times();
    std::int64_t n = 0;
    double round_ms = ms;
    for (const DecodeRow* row : rows_) {
      n += n_rows(*row);
      round_ms += row->draft_ms;
    }
    times.note(n, ms);
    const double plain_ms = times.ms(std::ssize(rows_));
    for (DecodeRow* row : rows_) {
      row->pass_ms = ms;
      row->round_ms = round_ms;
      row->plain_ms = plain_ms;
    }
  }

  bool all_ask_to_stop() const {
    return std::ranges::all_of(
        rows_, [](const DecodeRow* row) { return row->stop_requested && row->stop_requested(); });
  }

  const StepMemory::Scope scope_;
  StepVector<DecodeRow*> rows_;  // that share the pass
};

namespace {

// The pass for the row's token; drafts need one that is shared, if only in form.
void run_alone(DecodeRow& row) {
  if (!row.drafts.empty()) {
    row.drafts = {};
    row.status = DecodeBatch::plan(row);
    if (!row.status.ok()) return;
  }
  bool is_stopped = false;
  row.status = guarded([&] {
    while (row.sequence->prefilling() && !is_stopped) {
      is_stopped = !row.sequence->prefill_step(row.stop_requested);
    }
    return Status();
  });
  if (is_stopped) DecodeBatch::stopped(row);
}

// How many of `rows` fit a pass of `n_max` rows. The first does.
std::size_t n_that_fit(std::span<const DecodeRow> rows, std::int64_t n_max) {
  std::size_t n = 0;
  for (std::int64_t n_rows = 0; n < rows.size(); ++n) {
    n_rows += DecodeBatch::n_rows(rows[n]);
    if (n_rows > n_max) break;
  }
  return n;
}

}  // namespace

void decode_together(std::span<DecodeRow> rows) {
  if (rows.empty()) return;
  choose_drafts(rows, rows[0].sequence->model().step_times());
  for (DecodeRow& row : rows) row.status = DecodeBatch::plan(row);
  Activations& a = rows[0].sequence->model().activations();
  for (auto rest = rows; !rest.empty();) {
    const std::size_t n = n_that_fit(rest, a.max_rows);
    (void)guarded([&] {  // at worst nothing is done yet
      DecodeBatch(rest.first(n), a.memory).run();
      return Status();
    });
    rest = rest.subspan(n);
  }
  for (DecodeRow& row : rows) {
    if (row.status.ok() && row.sequence->prefilling()) run_alone(row);
  }
}

}  // namespace cairn::engine
