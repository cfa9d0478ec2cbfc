// Files of models: every reader, and what `explain` makes of a trace.
#include "explore/explain_trace.hpp"
#include "plan/workload.hpp"
#include "plan/workloads/kineto_trace.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/traces.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {test::small_step().text(),
          R"({"model_type":"mixtral","hidden_size":64,"intermediate_size":96,
              "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
              "vocab_size":100,"num_local_experts":4,"num_experts_per_tok":2})",
          R"({"model_type":"deepseek_v3","hidden_size":64,"intermediate_size":96,
              "moe_intermediate_size":8,"num_hidden_layers":3,"num_attention_heads":4,
              "vocab_size":100,"n_routed_experts":8,"n_shared_experts":1,"num_experts_per_tok":2,
              "first_k_dense_replace":1,"q_lora_rank":16,"kv_lora_rank":16,"qk_nope_head_dim":8,
              "qk_rope_head_dim":8,"v_head_dim":8})",
          R"({"model_type":"vit","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,
              "num_attention_heads":4,"image_size":32,"patch_size":16,"id2label":{"0":"a"}})",
          "HYBRID_TRANSFORMER model_parallel_NPU_group: 8\n1\n"
          "conv1 -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 5\n",
          R"-({"schema": "1.1.0-chakra.0.0.4", "nodes": [{"name": "torch::autograd::AccumulateGrad",
              "inputs": {"shapes": [[6, 2]], "types": ["Tensor(float)"]}}]})-",
          std::string("\x07\x0a\x05"
                      "0.0.4"
                      "\x1e\x08\x01\x12\x01"
                      "a\x18\x07\x52\x0e\x0a\x09"
                      "comm_size\x48\x40\x52\x05\x0a\x01"
                      "b\x48\x00",
                      39)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const std::string content(fuzz::text_of(data, size));
  fuzz::accepted([&] { plan::read_workload_text(content, "file"); });
  if (plan::is_trace(content)) {
    fuzz::accepted([&] {
      const explore::TraceExplanation all =
          explore::explain_trace(plan::read_trace("file", content));
      fuzz::require(all.exposed <= all.communication + 1_ns, "more exposed than there is");
    });
  }
  return 0;
}
