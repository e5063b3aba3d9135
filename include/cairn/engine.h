// Runtime and Model: the process-wide machinery and one loaded checkpoint.
//
// Lifetimes: all classes here are cheap handles on shared state. Destroy in any order; a session
// keeps its model and store alive, a model keeps its runtime alive.
// Threads: every function is safe from any thread unless it says otherwise.
#ifndef CAIRN_ENGINE_H_
#define CAIRN_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/instruction_set.h"
#include "cairn/log.h"
#include "cairn/message.h"
#include "cairn/status.h"

namespace cairn {

namespace engine {
class RuntimeState;
class LoadedModel;
}  // namespace engine

struct RuntimeOptions {
  // Threads for kernels, the strand's own included; 0 = one for each of compute_cpus, or one a core.
  std::int32_t compute_threads = 0;
  // CPUs that they run on, thread i on compute_cpus[i] only; empty = where the system puts them.
  // Else there are compute_threads of them, none twice, all of this process.
  std::vector<std::int32_t> compute_cpus;
  LogSink log;                       // empty = silent
  LogLevel log_level = LogLevel::kInfo;
  InstructionSet instruction_set = InstructionSet::kBest;  // the most that kernels may use
};

// Owns the strand on which all models of this runtime compute, and the compute threads.
class Runtime {
 public:
  static Result<Runtime> create(const RuntimeOptions& options = {});

  const std::shared_ptr<engine::RuntimeState>& state() const { return state_; }

 private:
  explicit Runtime(std::shared_ptr<engine::RuntimeState> state) : state_(std::move(state)) {}
  std::shared_ptr<engine::RuntimeState> state_;
};

// Arithmetic of a model, chosen at open (golden/README.md section 2).
enum class Numerics : std::int32_t {
  kReference = 0,  // the vendor's rounding points; what the product runs
  kF32Cache = 1,   // f32 activations, quantised KV cache: a check of the KV formats
  kF32 = 2,        // f32 throughout, nothing quantised but the weights: a check of the formulas
};

inline constexpr std::int32_t kMaxDrafts = 8;  // tokens proposed a step

struct ModelOptions {
  Numerics numerics = Numerics::kReference;
  // Tokens of one prefill step, 1 to 4096; cancel is checked between layers of a step. 0 = as many as
  // give each routed expert 8 of them on average, at least 64, at most 512.
  std::int32_t prefill_chunk = 0;
  std::int32_t max_context = 0;     // tokens; 0 = the checkpoint's own limit
  // Tokens that the checkpoint's draft stages propose a step, to be verified in one pass; what is
  // said is the same. 0 = as many as pay, none where there are no stages; -1 = none; else that many,
  // at most kMaxDrafts and the checkpoint's block.
  std::int32_t drafts = 0;
};

struct KvSourceInfo {
  std::int32_t layer = 0;
  std::int32_t ratio = 0;               // tokens per entry
  std::int64_t main_entry_bytes = 0;
  std::int64_t index_entry_bytes = 0;
  // (main + index) / ratio, as a fraction of two integers so that nothing is rounded
  std::int64_t bytes_numerator = 0, bytes_denominator = 1;
};

struct ModelInfo {
  std::string architecture;
  std::int32_t n_layers = 0, n_encoder_layers = 0, vocab_size = 0, max_context = 0;
  std::int32_t window = 0;
  std::vector<KvSourceInfo> kv_sources;
  std::int64_t global_kv_bytes_per_block = 0;  // of 128 tokens
  double global_kv_bytes_per_token = 0;
  std::int64_t window_bytes = 0;  // all layers of one sequence
  std::int64_t weight_bytes = 0;
  std::string fingerprint;  // hex; two models share KV only if equal
};

// How messages become a prompt (spec/prompt-format.md section 2).
struct PromptSettings {
  bool thinking = false;      // mode: thinking or chat
  std::int32_t effort = 75;   // 1..100, thinking only
  bool open_answer = true;    // with the header of the answer that is to come
};

struct Prompt {
  std::string text;
  std::vector<TokenId> tokens;
  // Of each message, the header of the answer after it included. A token that spans two messages
  // counts for the first, what the format begins with for none.
  std::vector<std::int64_t> message_tokens;
};

class Model {
 public:
  // Opens a checkpoint folder (config.json, *.safetensors, tokenizer.json) by memory map. Blocks.
  // Fails with kNotFound (missing file), kUnsupported (another architecture, unknown layout),
  // kCorrupt (a tensor missing, truncated, of wrong type or shape; the message names it).
  static Result<Model> open(const Runtime& runtime, const std::string& folder,
                            const ModelOptions& options = {});

  const ModelInfo& info() const;

  // Ordinary text to tokens; spellings of special tokens in it stay text. Never fails.
  std::vector<TokenId> tokenize(std::string_view text) const;
  // Tokens to bytes; may end inside a UTF-8 character. Unknown ids give kInvalidArgument.
  Result<std::string> detokenize(const std::vector<TokenId>& tokens) const;

  // The prompt that a session with these messages would compute, without running the model. Fails
  // with kInvalidArgument on what the format cannot represent.
  Result<Prompt> render(const std::vector<Message>& messages,
                        const PromptSettings& settings = {}) const;

  const std::shared_ptr<engine::LoadedModel>& state() const { return state_; }

 private:
  explicit Model(std::shared_ptr<engine::LoadedModel> state) : state_(std::move(state)) {}
  std::shared_ptr<engine::LoadedModel> state_;
};

}  // namespace cairn

#endif  // CAIRN_ENGINE_H_
