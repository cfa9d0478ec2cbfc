// The config.json of a transformer, as Hugging Face's libraries write it: sizes and switches of one
// `model_type` (transformer.hpp).
#include <filesystem>
#include <memory>

#include "plan/workloads/formats.hpp"
#include "plan/workloads/transformer.hpp"

namespace rackrail::plan {
namespace {

/// "config.json" names no model: then its folder does, else its type.
std::string name_of(const std::filesystem::path& path, const Transformer& model) {
  const std::string stem = stem_of(path);
  if (stem != "config") {
    return stem;
  }
  const std::string folder = path.parent_path().filename().string();
  return folder.empty() || folder.starts_with('.') ? model.type : folder;
}

class HuggingFaceReader : public WorkloadReader {
 public:
  std::string_view format() const override { return "config.json of a transformer"; }
  bool takes_options() const override { return true; }
  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    return is_json_with(content, "model_type");
  }
  Workload read(const std::filesystem::path& path, const std::string& content,
                const WorkloadOptions& options) const override {
    const Transformer model = read_transformer(path.string(), content);
    return workload_of(model, path.string(), name_of(path, model), options);
  }
};

}  // namespace

std::unique_ptr<WorkloadReader> make_huggingface_reader() {
  return std::make_unique<HuggingFaceReader>();
}

}  // namespace rackrail::plan
