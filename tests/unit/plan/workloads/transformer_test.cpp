#include "plan/workloads/transformer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::plan::transformer_test {
namespace {

struct Published {
  std::string name;
  std::string config;  // sizes and switches of the published config.json
  std::int64_t parameters;
};

// Counts are those of the published weights: the number of parameters that the model's page on
// Hugging Face shows, or num_parameters() of the library, for the encoders without a head.
const std::vector<Published> kPublished{
    {"meta-llama/Meta-Llama-3-8B",
     R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,
         "max_position_embeddings":8192,"tie_word_embeddings":false,"attention_bias":false})",
     8'030'261'248},
    {"meta-llama/Meta-Llama-3-70B",
     R"({"model_type":"llama","hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,
         "num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256,
         "max_position_embeddings":8192,"tie_word_embeddings":false})",
     70'553'706'496},
    {"meta-llama/Llama-3.2-1B",
     R"({"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
         "num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"vocab_size":128256,
         "max_position_embeddings":131072,"tie_word_embeddings":true})",
     1'235'814'400},
    {"meta-llama/Llama-2-7b-hf",
     R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":null,"vocab_size":32000,
         "max_position_embeddings":4096,"tie_word_embeddings":false})",
     6'738'415'616},
    {"mistralai/Mistral-7B-v0.1",
     R"({"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,
         "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
         "vocab_size":32000,"max_position_embeddings":32768,"tie_word_embeddings":false})",
     7'241'732'096},
    {"mistralai/Mixtral-8x7B-v0.1",
     R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,
         "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
         "vocab_size":32000,"max_position_embeddings":32768,"tie_word_embeddings":false,
         "num_local_experts":8,"num_experts_per_tok":2})",
     46'702'792'704},
    {"Qwen/Qwen2-7B",
     R"({"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
         "num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,
         "max_position_embeddings":131072,"tie_word_embeddings":false})",
     7'615'616'512},
    {"Qwen/Qwen2-0.5B",
     R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
         "num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,
         "max_position_embeddings":131072,"tie_word_embeddings":true})",
     494'032'768},
    {"Qwen/Qwen3-8B",
     R"({"model_type":"qwen3","hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,
         "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,
         "max_position_embeddings":40960,"tie_word_embeddings":false,"attention_bias":false})",
     8'190'735'360},
    {"Qwen/Qwen3-30B-A3B",
     R"({"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,
         "num_hidden_layers":48,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,
         "vocab_size":151936,"max_position_embeddings":40960,"tie_word_embeddings":false,
         "moe_intermediate_size":768,"num_experts":128,"num_experts_per_tok":8,
         "decoder_sparse_step":1,"mlp_only_layers":[]})",
     30'532'122'624},
    {"Qwen/Qwen1.5-MoE-A2.7B",
     R"({"model_type":"qwen2_moe","hidden_size":2048,"intermediate_size":5632,
         "num_hidden_layers":24,"num_attention_heads":16,"num_key_value_heads":16,
         "vocab_size":151936,"max_position_embeddings":8192,"tie_word_embeddings":false,
         "moe_intermediate_size":1408,"shared_expert_intermediate_size":5632,"num_experts":60,
         "num_experts_per_tok":4,"decoder_sparse_step":1})",
     14'315'784'192},
    {"google/gemma-7b",
     R"({"model_type":"gemma","hidden_size":3072,"intermediate_size":24576,"num_hidden_layers":28,
         "num_attention_heads":16,"num_key_value_heads":16,"head_dim":256,"vocab_size":256000,
         "max_position_embeddings":8192})",
     8'537'680'896},
    {"google/gemma-2-9b",
     R"({"model_type":"gemma2","hidden_size":3584,"intermediate_size":14336,
         "num_hidden_layers":42,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,
         "vocab_size":256000,"max_position_embeddings":8192})",
     9'241'705'984},
    {"google/gemma-3-1b-pt",
     R"({"model_type":"gemma3_text","hidden_size":1152,"intermediate_size":6912,
         "num_hidden_layers":26,"num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,
         "vocab_size":262144,"max_position_embeddings":32768})",
     999'885'952},
    {"microsoft/phi-2",
     R"({"model_type":"phi","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":51200,
         "max_position_embeddings":2048,"tie_word_embeddings":false})",
     2'779'683'840},
    {"microsoft/Phi-3-mini-4k-instruct",
     R"({"model_type":"phi3","hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
         "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064,
         "max_position_embeddings":4096,"tie_word_embeddings":false,"attention_bias":false})",
     3'821'079'552},
    {"openai-community/gpt2",
     R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024,
         "n_ctx":1024,"vocab_size":50257,"resid_pdrop":0.1})",
     124'439'808},
    {"EleutherAI/gpt-neox-20b",
     R"({"model_type":"gpt_neox","hidden_size":6144,"intermediate_size":24576,
         "num_hidden_layers":44,"num_attention_heads":64,"vocab_size":50432,
         "max_position_embeddings":2048,"tie_word_embeddings":false})",
     20'554'567'680},
    {"EleutherAI/gpt-j-6b",
     R"({"model_type":"gptj","n_embd":4096,"n_layer":28,"n_head":16,"n_positions":2048,
         "vocab_size":50400,"n_inner":null,"tie_word_embeddings":false})",
     6'050'882'784},
    {"facebook/opt-125m",
     R"({"model_type":"opt","hidden_size":768,"ffn_dim":3072,"num_hidden_layers":12,
         "num_attention_heads":12,"vocab_size":50272,"max_position_embeddings":2048,
         "word_embed_proj_dim":768})",
     125'239'296},
    {"bigscience/bloom-560m",
     R"({"model_type":"bloom","n_embed":1024,"n_layer":24,"num_attention_heads":16,
         "vocab_size":250880})",
     559'214'592},
    {"tiiuae/falcon-7b",
     R"({"model_type":"falcon","hidden_size":4544,"num_hidden_layers":32,"num_attention_heads":71,
         "vocab_size":65024,"bias":false,"multi_query":true,"new_decoder_architecture":false,
         "parallel_attn":true})",
     6'921'720'704},
    {"openai/gpt-oss-20b",
     R"({"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,
         "num_hidden_layers":24,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,
         "vocab_size":201088,"max_position_embeddings":131072,"tie_word_embeddings":false,
         "attention_bias":true,"num_local_experts":32,"num_experts_per_tok":4})",
     20'914'757'184},
    {"deepseek-ai/deepseek-moe-16b-base",
     R"({"model_type":"deepseek","hidden_size":2048,"intermediate_size":10944,
         "moe_intermediate_size":1408,"num_hidden_layers":28,"num_attention_heads":16,
         "num_key_value_heads":16,"vocab_size":102400,"max_position_embeddings":4096,
         "n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,
         "first_k_dense_replace":1,"moe_layer_freq":1,"tie_word_embeddings":false})",
     16'375'728'128},
    {"deepseek-ai/DeepSeek-V2-Lite",
     R"({"model_type":"deepseek_v2","hidden_size":2048,"intermediate_size":10944,
         "moe_intermediate_size":1408,"num_hidden_layers":27,"num_attention_heads":16,
         "num_key_value_heads":16,"vocab_size":102400,"max_position_embeddings":163840,
         "n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,
         "first_k_dense_replace":1,"moe_layer_freq":1,"tie_word_embeddings":false,
         "q_lora_rank":null,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
         "v_head_dim":128})",
     15'706'484'224},
    // Without its layer that predicts a token more, and without the routers' corrections, which
    // have no gradient.
    {"deepseek-ai/DeepSeek-V3",
     R"({"model_type":"deepseek_v3","hidden_size":7168,"intermediate_size":18432,
         "moe_intermediate_size":2048,"num_hidden_layers":61,"num_attention_heads":128,
         "num_key_value_heads":128,"vocab_size":129280,"max_position_embeddings":163840,
         "n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":8,
         "first_k_dense_replace":3,"moe_layer_freq":1,"tie_word_embeddings":false,
         "q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
         "v_head_dim":128})",
     671'026'404'352},
    {"google-bert/bert-large-uncased",
     R"({"model_type":"bert","hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":24,
         "num_attention_heads":16,"vocab_size":30522,"max_position_embeddings":512,
         "type_vocab_size":2})",
     335'141'888},
    {"FacebookAI/roberta-base",
     R"({"model_type":"roberta","hidden_size":768,"intermediate_size":3072,
         "num_hidden_layers":12,"num_attention_heads":12,"vocab_size":50265,
         "max_position_embeddings":514,"type_vocab_size":1})",
     124'645'632},
    {"distilbert/distilbert-base-uncased",
     R"({"model_type":"distilbert","dim":768,"hidden_dim":3072,"n_layers":6,"n_heads":12,
         "vocab_size":30522,"max_position_embeddings":512})",
     66'362'880},
    {"google/vit-large-patch16-224",
     R"({"model_type":"vit","hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":24,
         "num_attention_heads":16,"image_size":224,"patch_size":16,"num_channels":3,
         "num_labels":1000})",
     304'326'632}};

const Published& published(const std::string& name) {
  return *std::ranges::find_if(kPublished, [&](const Published& one) { return one.name == name; });
}

Workload read(const std::string& config, const WorkloadOptions& options = {}) {
  return read_workload_text(config, "some-model/config.json", options);
}

std::string error_of(const std::string& config, const WorkloadOptions& options = {}) {
  try {
    const Workload unused = read(config, options);
    FAIL("accepted a workload of " << unused.tensors.size() << " tensors");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

std::string with(const std::string& name, const std::string& from, const std::string& to) {
  std::string text = published(name).config;
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

TEST_CASE("parameters are as many as were published") {
  for (const Published& model : kPublished) {
    CAPTURE(model.name);
    const Workload workload = read(model.config);
    CHECK(workload.elements() == model.parameters);
    std::set<std::string> names;
    for (const GradientTensor& tensor : workload.tensors) {
      names.insert(tensor.name);
    }
    CHECK(names.size() == workload.tensors.size());
  }
}

TEST_CASE("shipped models are what the reader makes of their configurations") {
  const std::vector<std::pair<std::string, std::string>> shipped{
      {"llama3-8b", "meta-llama/Meta-Llama-3-8B"},
      {"llama3-70b", "meta-llama/Meta-Llama-3-70B"},
      {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"},
      {"vit-large", "google/vit-large-patch16-224"}};
  for (const auto& [name, model] : shipped) {
    CAPTURE(name);
    Workload counted = read_workload_text(published(model).config, name + ".json");
    const Workload file = read_workload(name, test::source_dir() / "configs");
    counted.source = file.source;
    CHECK(to_yaml(file) == to_yaml(counted));
  }
}

TEST_CASE("gradients become ready from the output to the embedding") {
  const Workload llama = read(published("meta-llama/Meta-Llama-3-8B").config);
  CHECK(llama.name == "some-model");
  CHECK(llama.tensors.front().name == "lm_head.weight");
  CHECK(llama.tensors[1].name == "norm.weight");
  CHECK(llama.tensors[2].name == "layers.31.mlp.down_proj.weight");
  CHECK(llama.tensors.back().name == "embed_tokens.weight");
  CHECK(llama.tensors.back().ready_gap == Duration());
  // A shared output layer has work but no gradient of its own.
  const Workload gpt2 = read(published("openai-community/gpt2").config);
  CHECK(gpt2.tensors.front().name == "norm.bias");
  CHECK(gpt2.tensors.front().ready_gap > Duration());
}

TEST_CASE("a step costs six FLOPs per parameter and token, and twelve per score") {
  const Workload llama =
      read(published("meta-llama/Meta-Llama-3-8B").config, {.sequence = 2048, .dtype = {}});
  // All but the embedding and the norms are products: 8,030,261,248 − 128,256·4096 − 65·4096.
  const double products = 7'504'658'432.0;
  const double tokens = 2048;
  const double forward = 2 * products * tokens + 4 * tokens * tokens * 4096 * 32;
  const double rate = 0.4 * 312e12;
  CHECK(llama.forward.seconds() == Approx(forward / rate).epsilon(1e-9));
  CHECK(llama.backward().seconds() == Approx(2 * forward / rate).epsilon(1e-6));
}

TEST_CASE("of the experts those are computed with that a token chooses") {
  const Workload mixtral =
      read(published("mistralai/Mixtral-8x7B-v0.1").config, {.sequence = 1024, .dtype = {}});
  // 12.88 billion parameters are active (mistral.ai/news/mixtral-of-experts: 12.9), the embedding
  // among them.
  const double active = 46'702'792'704.0 - 6.0 * 32 * 3 * 4096 * 14336;
  CHECK(active == Approx(12.9e9).epsilon(0.01));
  const double products = active - 32'000.0 * 4096 - 65 * 4096;
  const double forward = 2 * products * 1024 + 4.0 * 1024 * 1024 * 4096 * 32;
  CHECK(mixtral.forward.seconds() == Approx(forward / 124.8e12).epsilon(1e-9));
}

TEST_CASE("activations of a GPT are the 34 bytes of Korthikanti et al.") {
  const Workload gpt2 = read(published("openai-community/gpt2").config);
  CHECK(gpt2.memory_per_sample == Bytes(1024 * 12 * 34 * 768));
  CHECK(gpt2.memory_fixed == Bytes(124'439'808LL * 18));
}

TEST_CASE("sequence and dtype are what was asked for, else the usual") {
  const std::string llama = published("meta-llama/Meta-Llama-3-8B").config;
  using Catch::Contains;
  CHECK_THAT(read(llama).notes.front(), Contains("4096 tokens") && Contains("fp32"));
  CHECK_THAT(read(published("google-bert/bert-large-uncased").config).notes.front(),
             Contains("512 tokens"));
  const Workload half = read(llama, {.sequence = {}, .dtype = "bf16"});
  CHECK(half.gradient_bytes() == Bytes(8'030'261'248 * 2));
  CHECK(half.memory_fixed == Bytes(8'030'261'248 * 16));
  CHECK_THAT(half.notes.back(), Contains("count as FP32 of the same size"));
  CHECK_THAT(error_of(llama, {.sequence = 10'000, .dtype = {}}),
             Contains("--sequence") && Contains("from 1 to 8192"));
  CHECK_THAT(error_of(llama, {.sequence = 0, .dtype = {}}), Contains("from 1 to"));
  CHECK_THAT(error_of(llama, {.sequence = {}, .dtype = "int3"}), Contains("fp32, bf16 or fp16"));
  CHECK_THAT(
      error_of(published("google/vit-large-patch16-224").config, {.sequence = 100, .dtype = {}}),
      Contains("197 tokens"));
}

TEST_CASE("options mean nothing for files that say what is sent") {
  const std::string csv = "tensor,elements,ready_gap_us\nb,2,10\n";
  try {
    read_workload_text(csv, "w.csv", {.sequence = 5, .dtype = {}});
    FAIL("accepted");
  } catch (const ConfigError& e) {
    CHECK_THAT(e.what(), Catch::Contains("--sequence") && Catch::Contains("config.json"));
  }
}

TEST_CASE("what a config.json lacks or cannot mean is named") {
  using Catch::Contains;
  const std::string name = "meta-llama/Meta-Llama-3-8B";
  CHECK_THAT(error_of(with(name, "\"llama\"", "\"rwkv\"")),
             Contains("'rwkv'") && Contains("mixtral"));
  CHECK_THAT(error_of(with(name, "\"llama\"", "null")), Contains("model_type: found nothing"));
  CHECK_THAT(error_of(with(name, "\"hidden_size\":4096", "\"hidden_size\":-1")),
             Contains("hidden_size") && Contains("-1"));
  CHECK_THAT(error_of(with(name, "\"hidden_size\":4096", "\"hidden_size\":4096.5")),
             Contains("4096.5"));
  CHECK_THAT(error_of(with(name, "\"vocab_size\":128256,", "")),
             Contains("vocab_size: found nothing"));
  CHECK_THAT(error_of(with(name, "\"num_attention_heads\":32", "\"num_attention_heads\":33")),
             Contains("33 heads"));
  CHECK_THAT(error_of(with(name, "\"num_hidden_layers\":32", "\"num_hidden_layers\":16000000")),
             Contains("fewer than"));
  CHECK_THAT(error_of(with(name, "}", "")), Contains("broken JSON"));
  CHECK_THAT(error_of(with("mistralai/Mixtral-8x7B-v0.1", "\"num_experts_per_tok\":2",
                           "\"num_experts_per_tok\":9")),
             Contains("at most the 8 experts"));
  CHECK_THAT(error_of(with(name, "\"llama\"", "\"llama4\",\"text_config\":{}")),
             Contains("several parts"));
}

}  // namespace
}  // namespace rackrail::plan::transformer_test
