// Text workloads of ASTRA-sim 1.0, and of SimAI and AICB, which write the same form:
//
//   HYBRID_TRANSFORMER_FWD_IN_BCKWD  model_parallel_NPU_group: 8 ep: 1 pp: 1 ga: 4 all_gpus: 64
//   <number of layers>
//   name -1  forward: time, collective, bytes  input gradient: …  weight gradient: …  update time
//
// in columns between blanks or tabs, maybe with a parallelism at the end of a line. Times are
// nanoseconds: ASTRA-sim's cycles at 1 GHz. What is planned are the collectives that sum the
// gradients of weights. All others (of tensor and expert parallelism) are summed up in a note.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <ranges>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "plan/workloads/collective_names.hpp"
#include "plan/workloads/formats.hpp"

namespace rackrail::plan {
namespace {

constexpr std::array<std::string_view, 6> kHeads{
    "DATA", "MODEL", "HYBRID_", "MICRO", "DISTRIBUTED_INFERENCE", "TRANSFORMER"};
constexpr std::size_t kTextColumns = 12;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlank = " \t\r";
  while (true) {
    const std::size_t first = line.find_first_not_of(kBlank);
    if (first == std::string_view::npos) {
      return words;
    }
    line.remove_prefix(first);
    const std::size_t end = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

struct Line {
  std::size_t number = 0;
  std::vector<std::string_view> words;
};

/// Lines that have any words, at most so many.
std::vector<Line> lines_of(std::string_view content, std::size_t most) {
  std::vector<Line> lines;
  for (std::size_t number = 1; !content.empty() && lines.size() < most; ++number) {
    const std::size_t end = content.find('\n');
    if (auto words = words_of(content.substr(0, end)); !words.empty()) {
      lines.push_back({number, std::move(words)});
    }
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  }
  return lines;
}

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_number = error == std::errc{} && end == word.data() + word.size();
  return is_number ? std::optional(value) : std::nullopt;
}

bool is_head(const std::vector<std::string_view>& words) {
  return std::ranges::any_of(kHeads, [&](std::string_view head) {
    return head.ends_with('_') ? words.front().starts_with(head) : words.front() == head;
  });
}

class LayerParser {
 public:
  LayerParser(const std::string& file, std::vector<Line> lines)
      : file_(file), lines_(std::move(lines)) {}

  Workload parse(const std::string& name) {
    check_count();
    double waiting = 0;
    double forward = 0;
    double optimizer = 0;
    // The backward pass goes through the layers from the last to the first.
    for (const Line& line : lines_ | std::views::drop(2) | std::views::reverse) {
      if (line.words.size() < kTextColumns) {
        fail(
            line, counted(std::ssize(line.words), "column"),
            fmt::format("{}: name, dependency, three times time, collective and bytes, update time",
                        kTextColumns));
      }
      forward += time(line, 2);
      waiting += time(line, 5) + time(line, 8);
      others_ += other_bytes(line, 3) + other_bytes(line, 6);
      if (!carries_gradients(line)) {
        others_ += other_bytes(line, 9);
        continue;
      }
      optimizer += time(line, 11);
      workload_.tensors.push_back(
          {.name = fmt::format("{}.{}", std::string(line.words[0]), line.number),
           .elements = elements_of_width(bytes(line, 10), 1),
           .ready_gap = duration_of_nanoseconds(waiting, file_, where(line))});
      waiting = 0;
    }
    if (workload_.tensors.empty()) {
      throw ConfigError(ErrorContext{file_, "", "no collective that sums gradients of weights",
                                     "ALLREDUCE or REDUCESCATTER in the tenth column of a layer"});
    }
    workload_.name = name;
    workload_.source = fmt::format("text workload {}", name);
    workload_.forward = duration_of_nanoseconds(forward, file_, "forward");
    workload_.backward_tail = duration_of_nanoseconds(waiting, file_, "backward");
    workload_.optimizer = duration_of_nanoseconds(optimizer, file_, "update");
    workload_.fixed_share = 0;
    add_notes();
    return std::move(workload_);
  }

 private:
  static std::string where(const Line& line) { return fmt::format("line {}", line.number); }

  [[noreturn]] void fail(const Line& line, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, where(line), found, expected});
  }

  void check_count() const {
    const std::optional<double> count = number_of(lines_[1].words.front());
    const std::size_t layers = lines_.size() - 2;
    if (!count || *count != static_cast<double>(layers)) {
      fail(lines_[1],
           fmt::format("'{}' before {}", lines_[1].words.front(),
                       counted(static_cast<std::int64_t>(layers), "layer")),
           "their number");
    }
  }

  double time(const Line& line, std::size_t column) const {
    const std::optional<double> value = number_of(line.words[column]);
    if (!value || !(*value >= 0) || *value > 1e15) {
      fail(line, fmt::format("'{}' in column {}", line.words[column], column + 1),
           "a time in nanoseconds");
    }
    return *value;
  }

  std::int64_t bytes(const Line& line, std::size_t column) const {
    const std::optional<double> value = number_of(line.words[column]);
    if (!value || !(*value >= 0) || *value > static_cast<double>(kLargestTensor)) {
      fail(line, fmt::format("'{}' in column {}", line.words[column], column + 1),
           "a number of bytes");
    }
    return static_cast<std::int64_t>(*value);
  }

  double other_bytes(const Line& line, std::size_t column) const {
    const bool is_none = line.words[column] == "NONE";
    return is_none ? 0 : static_cast<double>(bytes(line, column + 1));
  }

  bool carries_gradients(const Line& line) const {
    const CollectiveKind kind = collective_of(line.words[9]);
    return (kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter) &&
           bytes(line, 10) > 0;
  }

  void add_notes() {
    workload_.notes.push_back(fmt::format(
        "{}: times are nanoseconds of whatever device they were made for; a step is one sample",
        file_));
    if (others_ > 0) {
      workload_.notes.push_back(fmt::format(
          "{}: {:.3g} GB of collectives of forward, of input gradients and of parameters are not "
          "planned; only sums of weights' gradients are",
          file_, others_ / 1e9));
    }
    const auto& head = lines_.front().words;
    for (std::size_t i = 1; i + 1 < head.size(); ++i) {
      if (head[i].starts_with("model_parallel") && head[i + 1] != "1") {
        workload_.notes.push_back(
            fmt::format("{}: gradients are those of one rank of {} that share the model (tensor "
                        "parallel); the ranks of the cluster are those that sum them",
                        file_, head[i + 1]));
      }
    }
  }

  const std::string& file_;
  std::vector<Line> lines_;
  Workload workload_;
  double others_ = 0;
};

class AstraTextReader : public WorkloadReader {
 public:
  std::string_view format() const override { return "text workload of ASTRA-sim or SimAI"; }
  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    const std::vector<Line> lines = lines_of(content, 2);
    return lines.size() == 2 && is_head(lines[0].words) && number_of(lines[1].words.front());
  }
  Workload read(const std::filesystem::path& path, const std::string& content,
                const WorkloadOptions& /*options*/) const override {
    const std::string file = path.string();
    return LayerParser(file, lines_of(content, kMostTensors + 2)).parse(stem_of(path));
  }
};

}  // namespace

std::unique_ptr<WorkloadReader> make_astra_text_reader() {
  return std::make_unique<AstraTextReader>();
}

}  // namespace rackrail::plan
