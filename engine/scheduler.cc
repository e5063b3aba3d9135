// Nothing here takes memory but add(): a step must be possible when there is none, if only to end.
#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace cairn::engine {

std::int64_t Scheduler::stride(TurnPriority priority) {
  switch (priority) {
    case TurnPriority::kInteractive:
      return 1;
    case TurnPriority::kAgent:
      return 2;
    case TurnPriority::kBackground:
      break;
  }
  return 8;
}

void Scheduler::add(std::shared_ptr<Job> job, TurnPriority priority) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({.job = std::move(job),
                      .stride = stride(priority),
                      .due = steps_.round,
                      .last_run = n_steps_});
  if (is_running_) return;
  try {
    post_step();
  } catch (...) {
    entries_.pop_back();
    throw;
  }
  is_running_ = true;
}

void Scheduler::post_step() {
  post_([this] { const Picked held = run_step(); });
}

Scheduler::Picked Scheduler::run_step() noexcept {
  for (;;) {
    Picked picked;
    std::size_t n = 0;
    {
      const std::lock_guard lock(mutex_);
      n = pick(picked);
    }
    run(picked, n);
    const std::lock_guard lock(mutex_);
    is_running_ = remove_finished(picked, n);
    if (!is_running_) return picked;
    try {
      post_step();
      return picked;
    } catch (...) {  // no memory for a task: this one goes on
    }
  }
}

void Scheduler::run(Picked& picked, std::size_t n) noexcept {
  if (n == 1 && picked[0]->next() != Job::Next::kDecode) {
    picked[0]->step();
    return;
  }
  std::array<DecodeRow, kMaxDecodeRows> rows;
  std::array<Job*, kMaxDecodeRows> jobs{};
  std::size_t n_rows = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (picked[i]->begin_decode(rows[n_rows])) jobs[n_rows++] = picked[i].get();
  }
  decode_together({rows.data(), n_rows});
  for (std::size_t i = 0; i < n_rows; ++i) jobs[i]->end_decode(rows[i]);
}

Scheduler::Entry* Scheduler::first_due(Job::Next queue) {
  Entry* first = nullptr;
  for (Entry& entry : entries_) {
    if (entry.queue != queue) continue;
    const auto order = [](const Entry& e) { return std::pair(e.due, e.last_run); };
    if (first == nullptr || order(entry) < order(*first)) first = &entry;
  }
  return first;
}

// Due again at the next multiple of the stride: those of one priority stay together.
void Scheduler::ran(Entry& entry, Queue& queue) {
  queue.round = std::max(queue.round, entry.due);
  entry.due = (queue.round / entry.stride + 1) * entry.stride;
  entry.last_run = n_steps_;
}

std::size_t Scheduler::pick(Picked& picked) {
  ++n_steps_;
  for (Entry& entry : entries_) {
    const Job::Next next = entry.job->next();
    if (next == Job::Next::kEnd) {
      picked[0] = entry.job;
      return 1;
    }
    if (next == entry.queue) continue;
    entry.queue = next;  // it has changed queues
    entry.due = (next == Job::Next::kDecode ? decodes_ : steps_).round;
  }
  Entry* const decode = first_due(Job::Next::kDecode);
  Entry* const step = first_due(Job::Next::kStep);
  if (decode == nullptr && step == nullptr) return 0;
  if (decode == nullptr) decodes_.due = std::max(decodes_.due, steps_.due);
  if (step == nullptr) steps_.due = std::max(steps_.due, decodes_.due);
  const bool decode_goes_first =
      decodes_.due != steps_.due ? decodes_.due < steps_.due : !decoded_last_;
  decoded_last_ = step == nullptr || (decode != nullptr && decode_goes_first);

  if (!decoded_last_) {
    steps_.due += step->stride;
    ran(*step, steps_);
    picked[0] = step->job;
    return 1;
  }
  const std::int64_t round = std::max(decodes_.round, decode->due);
  const LoadedModel* const model = decode->job->model();
  std::int64_t best_stride = decode->stride;
  std::size_t n = 0;
  for (Entry* entry = decode; entry != nullptr && n < picked.size();) {
    best_stride = std::min(best_stride, entry->stride);
    ran(*entry, decodes_);
    picked[n++] = entry->job;
    entry = nullptr;
    for (Entry& other : entries_) {
      const bool joins = other.queue == Job::Next::kDecode && other.due <= round &&
                         other.last_run != n_steps_ && other.job->model() == model;
      if (joins && (entry == nullptr || other.last_run < entry->last_run)) entry = &other;
    }
  }
  decodes_.due += best_stride;
  return n;
}

// Whether there is more to do.
bool Scheduler::remove_finished(const Picked& picked, std::size_t n) {
  std::erase_if(entries_, [&](const Entry& entry) {
    const bool is_held = std::find(picked.begin(), picked.begin() + static_cast<std::ptrdiff_t>(n),
                                   entry.job) != picked.begin() + static_cast<std::ptrdiff_t>(n);
    return is_held && entry.job->next() == Job::Next::kNothing;
  });
  return !entries_.empty();
}

}  // namespace cairn::engine
