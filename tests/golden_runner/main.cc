// cairn-golden MODEL CASE.safetensors --mode ref|f32c|f32
//
// Runs a checkpoint against a golden case and prints agreement per kind of tensor. Exit status: 0
// the rules hold, 1 they do not, 2 the comparison could not be made.
#include <cstdio>
#include <string>
#include <string_view>

#include "tests/golden_runner/runner.h"

namespace {

struct Arguments {
  std::string model, case_file, mode = "ref";
  int threads = 0;
};

bool parse(int argc, char** argv, Arguments& out) {
  std::vector<std::string> plain;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--mode" && i + 1 < argc) {
      out.mode = argv[++i];
    } else if (argument == "--threads" && i + 1 < argc) {
      out.threads = std::atoi(argv[++i]);
    } else if (!argument.starts_with("--")) {
      plain.emplace_back(argument);
    } else {
      return false;
    }
  }
  if (plain.size() != 2 || (out.mode != "ref" && out.mode != "f32c" && out.mode != "f32")) {
    return false;
  }
  out.model = plain[0];
  out.case_file = plain[1];
  return true;
}

cairn::Status run(const Arguments& arguments, cairn::golden::Agreement& agreement) {
  using namespace cairn;  // NOLINT: one function
  RuntimeOptions runtime_options;
  runtime_options.compute_threads = arguments.threads;
  CAIRN_ASSIGN_OR_RETURN(const Runtime runtime, Runtime::create(runtime_options));
  ModelOptions options;
  options.numerics = arguments.mode == "ref"    ? Numerics::kReference
                     : arguments.mode == "f32c" ? Numerics::kF32Cache
                                                : Numerics::kF32;
  CAIRN_ASSIGN_OR_RETURN(const Model opened, Model::open(runtime, arguments.model, options));
  const golden::ModelPtr& model = opened.state();
  CAIRN_ASSIGN_OR_RETURN(const golden::CaseFile file,
                         golden::CaseFile::open(arguments.case_file, arguments.mode));
  if (file.has("full_last_logits")) return golden::compare_replay(model, file, agreement);
  if (file.has("tokens")) return golden::compare_lengths(model, file, agreement);
  if (!file.has("prompt_ids") || !file.has("prefill_logits")) {
    return invalid_argument(arguments.case_file + " is not a case this program knows",
                            "see tests/golden/README.md section 3");
  }
  CAIRN_RETURN_IF_ERROR(golden::compare_end_to_end(model, file, agreement));
  return golden::compare_layers(model, file, agreement);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(
        stderr, "usage: cairn-golden MODEL CASE.safetensors [--mode ref|f32c|f32] [--threads N]\n");
    return 2;
  }
  cairn::golden::Agreement agreement;
  const cairn::Status status = run(arguments, agreement);
  if (!status.ok()) {
    std::fprintf(stderr, "cairn-golden: %s\n", status.to_string().c_str());
    return 2;
  }
  const bool good = agreement.report();
  std::printf("%s: %s\n", arguments.case_file.c_str(), good ? "agrees" : "DISAGREES");
  return good ? 0 : 1;
}
