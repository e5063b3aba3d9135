// The policy of the scheduler on jobs that only count: shares, alternation, and that nobody
// starves.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

namespace cairn::engine {
namespace {

// A strand that runs when told to.
class Strand {
 public:
  Scheduler scheduler{[this](std::function<void()> task) {
    if (fails) throw std::bad_alloc();
    tasks_.push_back(std::move(task));
  }};
  bool fails = false;

  bool run_one() {
    if (tasks_.empty()) return false;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    ++n_run;
    return true;
  }
  int n_run = 0;

 private:
  std::deque<std::function<void()>> tasks_;
};

class CountingJob : public Job {
 public:
  CountingJob(Strand& strand, Next kind) : kind(kind), strand_(strand) {}

  Next next() const noexcept override { return kind; }
  void step() noexcept override {
    EXPECT_TRUE(kind == Next::kStep || kind == Next::kEnd);
    count();
  }
  const LoadedModel* model() const noexcept override { return model_; }
  bool begin_decode(DecodeRow&) noexcept override {
    EXPECT_EQ(kind, Next::kDecode);
    count();
    return false;  // nothing for the engine to do
  }
  void end_decode(const DecodeRow&) noexcept override { ADD_FAILURE(); }

  Next kind;
  int n = 0, left = 1 << 30;
  int last = 0, longest_wait = 0;  // in steps of the strand
  const LoadedModel* model_ = nullptr;

 private:
  void count() {
    ++n;
    longest_wait = std::max(longest_wait, strand_.n_run - last);
    last = strand_.n_run;
    if (kind == Next::kEnd || --left == 0) kind = Next::kNothing;
  }
  Strand& strand_;
};

using Next = Job::Next;
using JobPtr = std::shared_ptr<CountingJob>;

JobPtr add(Strand& strand, Next kind, TurnPriority priority = TurnPriority::kInteractive) {
  auto job = std::make_shared<CountingJob>(strand, kind);
  job->last = strand.n_run;
  strand.scheduler.add(job, priority);
  return job;
}

void run(Strand& strand, int n_steps) {
  for (int i = 0; i < n_steps; ++i) ASSERT_TRUE(strand.run_one());
}

TEST(Scheduler, decodes_of_one_priority_share_every_pass) {
  Strand strand;
  const JobPtr a = add(strand, Next::kDecode, TurnPriority::kAgent);
  run(strand, 3);
  const JobPtr b = add(strand, Next::kDecode, TurnPriority::kAgent);
  const JobPtr c = add(strand, Next::kDecode, TurnPriority::kAgent);
  run(strand, 10);
  EXPECT_GE(a->n, 12);  // but for one in which the newcomers begin
  EXPECT_EQ(b->n, 10);
  EXPECT_EQ(c->n, 10);
}

TEST(Scheduler, decodes_of_two_models_share_none) {
  Strand strand;
  const JobPtr a = add(strand, Next::kDecode), b = add(strand, Next::kDecode);
  b->model_ = reinterpret_cast<const LoadedModel*>(&strand);
  run(strand, 20);
  EXPECT_EQ(a->n, 10);
  EXPECT_EQ(b->n, 10);
}

TEST(Scheduler, a_pass_has_room_for_so_many_rows_and_takes_all_in_turn) {
  Strand strand;
  std::vector<JobPtr> jobs;
  for (std::int64_t i = 0; i < 2 * kMaxDecodeRows; ++i) jobs.push_back(add(strand, Next::kDecode));
  run(strand, 20);
  for (const JobPtr& job : jobs) EXPECT_EQ(job->n, 10);
}

TEST(Scheduler, a_priority_is_a_share) {
  for (const Next kind : {Next::kDecode, Next::kStep}) {
    Strand strand;
    const JobPtr interactive = add(strand, kind), agent = add(strand, kind, TurnPriority::kAgent),
                 background = add(strand, kind, TurnPriority::kBackground);
    while (interactive->n < 800) run(strand, 1);
    EXPECT_NEAR(agent->n, 400, 2);
    EXPECT_NEAR(background->n, 100, 2);
  }
}

TEST(Scheduler, a_running_answer_waits_for_one_chunk_whoever_has_prompts) {
  Strand strand;
  const JobPtr answer = add(strand, Next::kDecode);
  std::vector<JobPtr> prompts;
  for (int i = 0; i < 5; ++i) prompts.push_back(add(strand, Next::kStep));
  run(strand, 200);
  EXPECT_NEAR(answer->n, 100, 1);
  EXPECT_LE(answer->longest_wait, 2);
  for (const JobPtr& prompt : prompts) EXPECT_NEAR(prompt->n, 20, 1);
}

TEST(Scheduler, prompts_in_the_background_leave_answers_most_of_the_time) {
  Strand strand;
  const JobPtr answer = add(strand, Next::kDecode);
  const JobPtr prompt = add(strand, Next::kStep, TurnPriority::kBackground);
  run(strand, 900);
  EXPECT_NEAR(answer->n, 800, 10);
  EXPECT_NEAR(prompt->n, 100, 10);
}

TEST(Scheduler, who_is_ending_comes_first) {
  Strand strand;
  for (int i = 0; i < 5; ++i) add(strand, i % 2 == 0 ? Next::kDecode : Next::kStep);
  const JobPtr job = add(strand, Next::kDecode, TurnPriority::kBackground);
  run(strand, 50);
  job->kind = Next::kEnd;
  run(strand, 1);
  EXPECT_EQ(job->kind, Next::kNothing);
  EXPECT_EQ(job.use_count(), 1);  // let go of
}

TEST(Scheduler, nobody_starves_in_any_mix) {
  constexpr unsigned kSeed = 4;
  std::mt19937 random(kSeed);
  int n_jobs = 0;
  for (int run_number = 0; run_number < 30; ++run_number) {
    Strand strand;
    struct Member {
      JobPtr job;
      std::int64_t stride;
    };
    std::vector<Member> members;
    for (int step = 0; step < 3000; ++step) {
      if (members.size() < 3 || (members.size() < 12 && random() % 20 == 0)) {
        const auto priority = static_cast<TurnPriority>(random() % 3);
        const JobPtr job = add(strand, random() % 2 == 0 ? Next::kDecode : Next::kStep, priority);
        job->left = 1 + static_cast<int>(random() % 200);
        members.push_back({job, Scheduler::stride(priority)});
        ++n_jobs;
      }
      // Turns go from prompt to answer.
      const Member& some = members[random() % members.size()];
      if (some.job->kind == Next::kStep && random() % 10 == 0) some.job->kind = Next::kDecode;
      run(strand, 1);
      std::erase_if(members, [&](const Member& member) {
        if (member.job->kind != Next::kNothing) return false;
        // In its rounds each of 12 others has its steps, and the other queue 8 times as many.
        EXPECT_LE(member.job->longest_wait, member.stride * 12 * 9 + 16);
        return true;
      });
    }
    for (const Member& member : members) {
      EXPECT_LE(strand.n_run - member.job->last, member.stride * 12 * 9 + 16);
    }
  }
  std::printf("seed %u, %d jobs\n", kSeed, n_jobs);
}

TEST(Scheduler, without_memory_for_tasks_jobs_come_to_their_end) {
  Strand strand;
  const JobPtr a = add(strand, Next::kStep), b = add(strand, Next::kDecode);
  a->left = 5;
  b->left = 7;
  strand.fails = true;
  EXPECT_TRUE(strand.run_one());  // all of it
  EXPECT_EQ(a->n, 5);
  EXPECT_EQ(b->n, 7);
  EXPECT_THROW(add(strand, Next::kStep), std::bad_alloc);
  strand.fails = false;
  EXPECT_FALSE(strand.run_one());
  const JobPtr c = add(strand, Next::kStep);
  run(strand, 1);
  EXPECT_EQ(c->n, 1);
}

}  // namespace
}  // namespace cairn::engine
