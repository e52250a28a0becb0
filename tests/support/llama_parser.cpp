// Prints what llama.cpp's own parser makes of the arguments of llama-server, as a line of JSON.
// docs/extending.md says how it is built; tests run it where HELM_LLAMA_PARSER names it.

#include <cstdio>

#include "arg.h"
#include "common.h"
#include "ggml-backend.h"
#include "ggml.h"

int main(int argc, char** argv) {
  common_params params;
  if (!common_params_parse(argc, argv, params, LLAMA_EXAMPLE_SERVER)) return 1;
  std::printf("{\"ngl\": %d, \"n_parallel\": %d, \"n_ctx\": %d, \"n_batch\": %d, \"n_ubatch\": %d, ",
              params.n_gpu_layers, params.n_parallel, params.n_ctx, params.n_batch, params.n_ubatch);
  std::printf("\"ctk\": \"%s\", \"ctv\": \"%s\", \"no_op_offload\": %d, \"overrides\": [",
              ggml_type_name(params.cache_type_k), ggml_type_name(params.cache_type_v), int(params.no_op_offload));
  const char* before = "";
  for (const auto& rule : params.tensor_buft_overrides) {
    if (rule.pattern == nullptr) continue;  // ends the list
    std::printf("%s[\"", before);
    for (const char* at = rule.pattern; *at != 0; ++at) std::printf(*at == '\\' || *at == '"' ? "\\%c" : "%c", *at);
    std::printf("\", \"%s\"]", ggml_backend_buft_name(rule.buft));
    before = ", ";
  }
  std::printf("]}\n");
}
