#include "export/nccl/tuner_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.hpp"

namespace rackrail::exporting::nccl {

namespace {

using sim::nccl::Algorithm;
using sim::nccl::Protocol;

/// Above any buffer, and a number that signed and unsigned parsers read.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62U;

std::string_view name_of(Collective collective) {
  constexpr std::array<std::string_view, 5> kNames{"allreduce", "allgather", "reducescatter",
                                                   "broadcast", "reduce"};
  return kNames[static_cast<std::size_t>(collective)];
}

/// The largest size that is nearer to the `index`-th than to the next, by ratio.
std::uint64_t last_size_of(const ShapeTuning& shape, std::size_t index) {
  if (index + 1 == shape.sizes.size()) {
    return kNoLimit;
  }
  const auto here = static_cast<double>(shape.sizes[index].size.count());
  const auto next = static_cast<double>(shape.sizes[index + 1].size.count());
  return static_cast<std::uint64_t>(std::sqrt(here * next));
}

bool goes_on(const TableRow& row, const TableRow& next) {
  return row.collective == next.collective && row.setting == next.setting &&
         row.nodes == next.nodes && row.ranks == next.ranks &&
         row.needs_registered_buffers == next.needs_registered_buffers &&
         row.most_bytes + 1 == next.least_bytes;
}

void append(std::vector<TableRow>& rows, const TableRow& row) {
  if (!rows.empty() && goes_on(rows.back(), row)) {
    rows.back().most_bytes = row.most_bytes;
  } else {
    rows.push_back(row);
  }
}

/// Rows of one collective over all sizes; those that `setting_of` says nothing about are left out.
template <typename SettingOf>
void add_sizes(std::vector<TableRow>& rows, const ShapeTuning& shape, Collective collective,
               const SettingOf& setting_of) {
  std::uint64_t least = 0;
  for (std::size_t i = 0; i < shape.sizes.size(); ++i) {
    const std::uint64_t most = last_size_of(shape, i);
    if (const std::optional<Setting> setting = setting_of(shape.sizes[i])) {
      append(rows, {collective, least, most, *setting, shape.nodes, shape.ranks()});
    }
    least = most + 1;
  }
}

void add_rings(std::vector<TableRow>& rows, const ShapeTuning& shape, Collective collective) {
  add_sizes(rows, shape, collective, [&](const SizeTuning& size) {
    return std::optional(Setting{Algorithm::kRing, size.one_way, shape.channels, Bytes(0)});
  });
}

/// For communicators of shapes that were not looked at: rings, as in this one.
void add_any_shape(std::vector<TableRow>& rows, const ShapeTuning& shape) {
  std::vector<TableRow> rings;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kBroadcast, Collective::kReduce}) {
    add_rings(rings, shape, collective);
  }
  for (TableRow& row : rings) {
    row.nodes = 0;
    row.ranks = 0;
    rows.push_back(row);
  }
}

/// NVLS where it is there, for buffers that the switch can reach.
void add_registered(std::vector<TableRow>& rows, const ShapeTuning& shape, Collective collective) {
  if (shape.has_sharp && shape.nodes == 1) {
    TableRow row{collective,  0,
                 kNoLimit,    {Algorithm::kNvls, Protocol::kSimple, shape.nvls_channels, Bytes(0)},
                 shape.nodes, shape.ranks()};
    row.needs_registered_buffers = true;
    rows.push_back(row);
  }
}

}  // namespace

std::string table_name(Algorithm algorithm) {
  std::string name(to_string(algorithm));
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string table_name(Protocol protocol) { return std::string(to_string(protocol)); }

std::vector<TableRow> overriding_rows(std::span<const ShapeTuning> shapes) {
  std::vector<TableRow> rows;
  for (const ShapeTuning& shape : shapes) {
    add_sizes(rows, shape, Collective::kAllReduce, [](const SizeTuning& size) {
      return size.is_overridden() ? std::optional(size.chosen) : std::nullopt;
    });
  }
  return rows;
}

std::vector<TableRow> covering_rows(std::span<const ShapeTuning> shapes) {
  std::vector<TableRow> rows;
  for (const ShapeTuning& shape : shapes) {
    add_sizes(rows, shape, Collective::kAllReduce,
              [](const SizeTuning& size) { return std::optional(size.chosen); });
    for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
      add_registered(rows, shape, collective);
    }
    for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter,
                                        Collective::kBroadcast, Collective::kReduce}) {
      add_rings(rows, shape, collective);
    }
  }
  if (!shapes.empty()) {
    add_any_shape(rows, shapes.front());
  }
  return rows;
}

std::string to_nccl_csv(std::span<const TableRow> rows, std::string_view title, bool with_chunk) {
  std::string text = fmt::format(
      "# {}\n"
      "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,"
      "regBuff{}\n",
      title, with_chunk ? ",chunk_bytes" : "");
  for (const TableRow& row : rows) {
    const auto any = [](std::size_t count) { return count > 0 ? std::to_string(count) : "-1"; };
    text += fmt::format("{},{},{},{},{},{},{},{},-1,{}", name_of(row.collective), row.least_bytes,
                        row.most_bytes, table_name(row.setting.algorithm),
                        table_name(row.setting.protocol), row.setting.channels, any(row.nodes),
                        any(row.ranks), row.needs_registered_buffers ? 1 : -1);
    text += with_chunk ? fmt::format(",{}\n", row.setting.chunk.count()) : "\n";
  }
  return text;
}

std::string to_ncclx_csv(std::span<const TableRow> rows, std::string_view title) {
  std::string text = fmt::format(
      "# {}\n"
      "# collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,numPipeOps,regBuff,"
      "chunkSize\n",
      title);
  for (const TableRow& row : rows) {
    // NCCLX divides a size by the ranks and drops the rest: the first size of a range may share its
    // quotient with the last of the range before.
    const std::uint64_t least = (row.least_bytes + row.ranks - 1) / row.ranks;
    const std::uint64_t most = row.most_bytes / row.ranks;
    if (least > most) {
      continue;
    }
    const std::string sizes = row.most_bytes == kNoLimit ? fmt::format("[{},)", least)
                                                         : fmt::format("[{},{}]", least, most);
    text += fmt::format("{},{},{},{},{},{},{},-1,{},{}\n", name_of(row.collective), sizes,
                        table_name(row.setting.algorithm), table_name(row.setting.protocol),
                        row.setting.channels, row.nodes, row.ranks / row.nodes,
                        row.needs_registered_buffers ? 1 : -1, row.setting.chunk.count());
  }
  return text;
}

std::string_view gfx_architecture(std::string_view device_class) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kArchitectures{{
      {"MI100", "gfx908"},
      {"MI210", "gfx90a"},
      {"MI250X", "gfx90a"},
      {"MI300X", "gfx942"},
      {"MI325X", "gfx942"},
      {"MI350X", "gfx950"},
      {"MI355X", "gfx950"},
  }};
  const auto found = std::ranges::find_if(kArchitectures, [&](const auto& one) {
    return is_same_in_any_case(one.first, device_class);
  });
  return found == kArchitectures.end() ? std::string_view() : found->second;
}

}  // namespace rackrail::exporting::nccl
