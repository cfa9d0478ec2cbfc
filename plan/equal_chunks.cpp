#include "plan/equal_chunks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace rackrail::plan {

namespace {

constexpr std::uint64_t kMostUnits = 4096;

}  // namespace

void refuse_schedule(const TransferGraph& graph, std::string found, std::string expected) {
  throw ConfigError(
      ErrorContext{"", "schedule '" + graph.name() + "'", std::move(found), std::move(expected)});
}

void require_no_codecs(const TransferGraph& graph) {
  if (graph.codecs().size() > 1) {
    refuse_schedule(graph, "codecs", "FP32 alone: plan with --error-budget 0");
  }
}

EqualChunks::EqualChunks(const TransferGraph& graph, const char* format) {
  std::uint64_t unit = 0;
  for (const std::uint32_t weight : graph.chunk_weights()) {
    unit = std::gcd(unit, std::uint64_t{weight});
  }
  std::uint64_t total = 0;
  for (const std::uint32_t weight : graph.chunk_weights()) {
    counts_.push_back(static_cast<int>(weight / unit));
    total += weight / unit;
  }
  if (total > kMostUnits) {
    refuse_schedule(graph, fmt::format("chunks of {} units", total),
                    fmt::format("at most {}, as {}'s chunks are all of one size: plan with "
                                "--schedule of another family",
                                kMostUnits, format));
  }
  total_ = static_cast<int>(total);
  place_chunks(graph, format);
}

void EqualChunks::place_chunks(const TransferGraph& graph, const char* format) {
  begins_.assign(counts_.size(), 0);
  if (graph.owners().empty()) {
    std::exclusive_scan(counts_.begin(), counts_.end(), begins_.begin(), 0);
    return;
  }
  const auto ranks = static_cast<int>(graph.rank_count());
  std::vector<int> filled(graph.rank_count(), 0);
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    int& part = filled[graph.owners()[c].index()];
    begins_[c] = static_cast<int>(graph.owners()[c].value()) * (total_ / ranks) + part;
    part += counts_[c];
  }
  if (std::ranges::any_of(filled, [&](int part) { return part * ranks != total_; })) {
    refuse_schedule(graph, "ranks that own unequal parts",
                    fmt::format("equal ones, as {} has them", format));
  }
}

std::vector<UnitRange> EqualChunks::runs(std::span<const std::uint32_t> chunks, int most) const {
  std::vector<UnitRange> runs;
  for (const std::uint32_t c : chunks) {
    for (int done = 0; done < counts_[c];) {
      const int begin = begins_[c] + done;
      const bool goes_on = !runs.empty() && runs.back().begin + runs.back().count == begin &&
                           runs.back().count < most;
      if (!goes_on) {
        runs.push_back({begin, 0});
      }
      const int more = std::min(counts_[c] - done, most - runs.back().count);
      runs.back().count += more;
      done += more;
    }
  }
  return runs;
}

}  // namespace rackrail::plan
