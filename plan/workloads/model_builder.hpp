// The parts of a transformer, added one after another; used by the files that know its families.
#pragma once

#include <cstdint>
#include <string>

#include "plan/workloads/model_config.hpp"
#include "plan/workloads/transformer.hpp"

namespace rackrail::plan {

class ModelBuilder {
 public:
  explicit ModelBuilder(const ModelConfig& config) : config_(config) {}

  /// A linear layer's weight, and its bias; every token is multiplied by it unless `uses` is less.
  void linear(const std::string& name, std::int64_t rows, std::int64_t columns, bool bias = false,
              double uses = 1);
  /// Rows that are looked up.
  void embedding(const std::string& name, std::int64_t rows, std::int64_t columns);
  void vector(const std::string& name, std::int64_t elements);
  void norm(const std::string& name, std::int64_t width, bool bias);
  /// Products of queries with keys and of their weights with values.
  void scores(std::int64_t heads, std::int64_t key_dimension, std::int64_t value_dimension);
  /// The output layer; `is_shared` with the embedding.
  void output(const std::string& name, std::int64_t vocabulary, std::int64_t width, bool is_shared,
              bool bias = false);

  /// Values and masks that stay for backward, in bytes of one token.
  void keep_values(double count) { model.activation_bytes_per_token += 2 * count; }
  void keep_masks(double count) { model.activation_bytes_per_token += count; }

  /// The masks of a layer's two dropouts, where the model has any.
  void keep_dropouts(std::int64_t width);

  const ModelConfig& config() const { return config_; }

  Transformer model;

 private:
  void add(ModelPart part);

  const ModelConfig& config_;
  std::int64_t parameters_ = 0;
};

// The families. Each returns whether it knows the type and then has added all parts.
bool build_decoder(const std::string& type, ModelBuilder& builder);
bool build_encoder(const std::string& type, ModelBuilder& builder);
/// Their types, for messages.
std::vector<std::string> decoder_types();
std::vector<std::string> encoder_types();

}  // namespace rackrail::plan
