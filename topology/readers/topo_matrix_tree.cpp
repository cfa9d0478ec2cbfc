#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/disjoint_sets.hpp"
#include "base/error.hpp"
#include "topology/readers/topo_matrix.hpp"

namespace rackrail::topology {
namespace {

bool is_place(TopoRelation relation) {
  return relation >= TopoRelation::kPix && relation <= TopoRelation::kSys;
}

/// Devices that share a CPU, and which of these sets may not be joined.
class CpuSets {
 public:
  explicit CpuSets(DisjointSets sets, std::size_t size)
      : sets_(std::move(sets)), size_(size), is_apart_(size * size) {}

  void set_apart(std::uint32_t a, std::uint32_t b) {
    is_apart_[sets_.find(a) * size_ + sets_.find(b)] = true;
    is_apart_[sets_.find(b) * size_ + sets_.find(a)] = true;
  }
  bool are_joined(std::uint32_t a, std::uint32_t b) { return sets_.find(a) == sets_.find(b); }
  /// False: they may not be.
  bool try_join(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t old_a = sets_.find(a);
    const std::uint32_t old_b = sets_.find(b);
    if (old_a == old_b) return true;
    if (is_apart_[old_a * size_ + old_b]) return false;
    sets_.join(a, b);
    for (std::uint32_t i = 0; i < size_; ++i) {
      if (is_apart_[old_a * size_ + i] || is_apart_[old_b * size_ + i]) set_apart(a, i);
    }
    return true;
  }
  std::vector<std::uint32_t> numbers() { return sets_.numbers(); }

 private:
  DisjointSets sets_;
  std::size_t size_;
  std::vector<bool> is_apart_;  // by set and set
};

class TreeBuilder {
 public:
  TreeBuilder(const TopoMatrix& matrix, const std::string& file, std::vector<std::string>& notes)
      : matrix_(matrix), file_(file), notes_(notes), size_(matrix.devices.size()) {}

  NcclMachine build() {
    const std::vector<std::uint32_t> bridges = joined_up_to(TopoRelation::kPix).numbers();
    const std::vector<std::uint32_t> ports = joined_up_to(TopoRelation::kPxb).numbers();
    const std::vector<std::uint32_t> cpus = cpu_of_each();
    note_crossed(bridges, ports);
    device_of_.resize(size_);
    for (std::uint32_t cpu = 0; std::ranges::find(cpus, cpu) != cpus.end(); ++cpu) {
      machine_.cpus.push_back(numa_of(cpus, cpu));
      for (std::size_t i = 0; i < size_; ++i) {
        if (cpus[i] == cpu && is_first(ports, i)) add_root_port(bridges, ports, i);
      }
    }
    add_gpu_links();
    return std::move(machine_);
  }

 private:
  [[noreturn]] void fail(std::size_t row, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(
        ErrorContext{file_, fmt::format("line {}", matrix_.devices[row].line), found, expected});
  }

  std::string cell(std::size_t i, std::size_t j) const {
    return fmt::format("{} in row {}, column {}", to_string(matrix_.at(i, j)),
                       matrix_.devices[i].label, matrix_.devices[j].label);
  }

  DisjointSets joined_up_to(TopoRelation most) const {
    DisjointSets sets(size_);
    for (std::uint32_t i = 0; i < size_; ++i) {
      for (std::uint32_t j = 0; j < i; ++j) {
        const TopoRelation relation = matrix_.at(i, j).relation;
        if (is_place(relation) && relation <= most) sets.join(i, j);
      }
    }
    return sets;
  }

  static bool is_first(const std::vector<std::uint32_t>& numbers, std::size_t i) {
    return std::find(numbers.begin(), numbers.end(), numbers[i]) - numbers.begin() ==
           static_cast<std::ptrdiff_t>(i);
  }

  /// By places on host bridges; then by NODE and NUMA nodes, as far as nothing says SYS; what
  /// nothing is known of is at the first CPU.
  std::vector<std::uint32_t> cpu_of_each() {
    CpuSets sets(joined_up_to(TopoRelation::kPhb), size_);
    keep_apart(sets);
    bool is_noted = false;
    for (std::uint32_t i = 0; i < size_; ++i) {
      for (std::uint32_t j = i + 1; j < size_; ++j) {
        if (matrix_.at(i, j).relation != TopoRelation::kNode || sets.try_join(i, j)) continue;
        if (!is_noted) {
          notes_.push_back(cell(i, j) +
                           ", though SYS of other cells or the NUMA affinity puts the "
                           "two at different CPUs: taken as SYS");
        }
        is_noted = true;
      }
    }
    std::map<std::string, std::uint32_t> first_of;
    std::optional<std::uint32_t> first_unknown;
    for (std::uint32_t i = 0; i < size_; ++i) {
      const std::string& numa = matrix_.devices[i].numa;
      if (!numa.empty()) {
        sets.try_join(first_of.emplace(numa, i).first->second, i);
      } else if (has_no_place(i)) {
        sets.try_join(first_unknown.value_or(0), i);
        if (!first_unknown) first_unknown = i;
      }
    }
    return sets.numbers();
  }

  bool has_no_place(std::size_t i) const {
    for (std::size_t j = 0; j < size_; ++j) {
      if (is_place(matrix_.at(i, j).relation)) return false;
    }
    return true;
  }

  /// SYS apart, or in different NUMA nodes. Throws where a host bridge joins what is SYS apart.
  void keep_apart(CpuSets& sets) const {
    for (std::uint32_t i = 0; i < size_; ++i) {
      for (std::uint32_t j = i + 1; j < size_; ++j) {
        const std::string& numa = matrix_.devices[i].numa;
        const std::string& other = matrix_.devices[j].numa;
        const bool is_sys = matrix_.at(i, j).relation == TopoRelation::kSys;
        if (!is_sys && (numa.empty() || other.empty() || numa == other)) continue;
        if (!sets.are_joined(i, j)) {
          sets.set_apart(i, j);
          continue;
        }
        if (!is_sys) continue;
        const std::vector<std::size_t> way = way_between(i, j);
        std::string steps;
        for (std::size_t k = 1; k < way.size(); ++k) {
          steps += (k == 1 ? "" : ", ") + cell(way[k - 1], way[k]);
        }
        fail(i, cell(i, j), fmt::format("a closer place, by {}", steps));
      }
    }
  }

  /// Over cells that join host bridges, the shortest.
  std::vector<std::size_t> way_between(std::size_t from, std::size_t to) const {
    std::vector<std::optional<std::size_t>> before(size_);
    std::deque<std::size_t> open{to};
    before[to] = to;
    while (!open.empty() && !before[from]) {
      const std::size_t i = open.front();
      open.pop_front();
      for (std::size_t j = 0; j < size_; ++j) {
        const TopoRelation relation = matrix_.at(i, j).relation;
        if (before[j] || !is_place(relation) || relation > TopoRelation::kPhb) continue;
        before[j] = i;
        open.push_back(j);
      }
    }
    std::vector<std::size_t> way{from};
    while (way.back() != to && before[way.back()]) way.push_back(*before[way.back()]);
    return way;
  }

  /// Within one CPU the nearer place counts where cells disagree.
  void note_crossed(const std::vector<std::uint32_t>& bridges,
                    const std::vector<std::uint32_t>& ports) {
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = i + 1; j < size_; ++j) {
        const TopoRelation relation = matrix_.at(i, j).relation;
        if (!is_place(relation)) continue;
        const bool is_crossed = (bridges[i] == bridges[j] && relation > TopoRelation::kPix) ||
                                (ports[i] == ports[j] && relation > TopoRelation::kPxb);
        if (!is_crossed) continue;
        notes_.push_back(fmt::format("{}, though other cells of the two say {}: the nearer counts",
                                     cell(i, j), bridges[i] == bridges[j] ? "PIX" : "PXB"));
        return;
      }
    }
  }

  std::string numa_of(const std::vector<std::uint32_t>& cpus, std::uint32_t cpu) const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (cpus[i] == cpu && !matrix_.devices[i].numa.empty()) return matrix_.devices[i].numa;
    }
    return "";
  }

  std::size_t add(PciDevice device, std::optional<std::size_t> parent) {
    device.parent = parent;
    device.cpu = machine_.cpus.size() - 1;
    machine_.devices.push_back(std::move(device));
    return machine_.devices.size() - 1;
  }

  std::size_t add_bridge(std::optional<std::size_t> parent) {
    PciDevice bridge;
    bridge.role = PciDevice::Role::kBridge;
    return add(std::move(bridge), parent);
  }

  /// All devices on the root port of device `first`, below a bridge where they are several, and
  /// those of one bridge among others below a bridge of their own.
  void add_root_port(const std::vector<std::uint32_t>& bridges,
                     const std::vector<std::uint32_t>& ports, std::size_t first) {
    const auto count = [](const std::vector<std::uint32_t>& numbers, std::size_t i) {
      return std::count(numbers.begin(), numbers.end(), numbers[i]);
    };
    if (count(ports, first) == 1) {
      add_device(first, std::nullopt);
      return;
    }
    const std::size_t root = add_bridge(std::nullopt);
    for (std::size_t i = first; i < size_; ++i) {
      if (ports[i] != ports[first] || !is_first(bridges, i)) continue;
      const bool is_own = count(bridges, i) > 1 && count(bridges, i) < count(ports, first);
      const std::size_t parent = is_own ? add_bridge(root) : root;
      for (std::size_t j = i; j < size_; ++j) {
        if (bridges[j] == bridges[i]) add_device(j, parent);
      }
    }
  }

  void add_device(std::size_t i, std::optional<std::size_t> parent) {
    const TopoDevice& source = matrix_.devices[i];
    PciDevice device;
    device.role = source.is_gpu ? PciDevice::Role::kGpu : PciDevice::Role::kNic;
    device.is_described = true;
    device.label = source.label;
    device.names = source.name;
    device.where = "row " + source.label;
    device.number = static_cast<std::int64_t>(i);
    if (source.is_gpu) device.bus_id = normalised_bus_id(source.label);
    device_of_[i] = add(std::move(device), parent);
  }

  bool has_nvlink(std::size_t i, std::size_t j) const {
    return matrix_.at(i, j).relation == TopoRelation::kNvlink && matrix_.devices[i].is_gpu &&
           matrix_.devices[j].is_gpu;
  }

  int links_of(std::size_t i) const {
    int sum = 0;
    for (std::size_t j = 0; j < size_; ++j) sum += has_nvlink(i, j) ? matrix_.at(i, j).links : 0;
    return sum;
  }

  void add_gpu_links() {
    DisjointSets sets(size_);
    for (std::uint32_t i = 0; i < size_; ++i) {
      for (std::uint32_t j = 0; j < i; ++j) {
        if (has_nvlink(i, j)) sets.join(i, j);
      }
    }
    const std::vector<std::uint32_t> islands = sets.numbers();
    std::size_t switches = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if (!is_first(islands, i)) continue;
      std::vector<std::size_t> members;
      for (std::size_t j = i; j < size_; ++j) {
        if (islands[j] == islands[i]) members.push_back(j);
      }
      // Of what a GPU does not have that many, all its peers see the same: those to NVSwitches.
      const bool is_switched = std::any_of(members.begin(), members.end(), [this](std::size_t j) {
        return links_of(j) > kMostNvlinks;
      });
      if (is_switched) {
        add_switched(members, switches++);
      } else {
        add_direct(members);
      }
    }
  }

  void add_switched(const std::vector<std::size_t>& members, std::size_t island) {
    for (const std::size_t i : members) {
      GpuLink link;
      link.to = GpuLink::To::kSwitch;
      link.island = island;
      link.count = 0;
      for (const std::size_t j : members) {
        if (i == j) continue;
        link.count = std::max<std::int64_t>(link.count, matrix_.at(i, j).links);
        if (has_nvlink(i, j)) continue;
        fail(i, cell(i, j),
             fmt::format("NVLinks there, too: {} to all its peers are more than a GPU has, so that "
                         "they are on NVSwitches",
                         cell(i, first_peer(i))));
      }
      machine_.devices[device_of_[i]].links.push_back(link);
    }
    notes_.push_back(
        fmt::format("NV{} between {} GPUs is over NVSwitches: directly it would be "
                    "more links than a GPU has",
                    matrix_.at(members[0], members[1]).links, members.size()));
  }

  std::size_t first_peer(std::size_t i) const {
    std::size_t peer = 0;
    while (!has_nvlink(i, peer)) ++peer;
    return peer;
  }

  void add_direct(const std::vector<std::size_t>& members) {
    for (const std::size_t i : members) {
      for (const std::size_t j : members) {
        if (!has_nvlink(i, j)) continue;
        GpuLink link;
        link.target = normalised_bus_id(matrix_.devices[j].label);
        link.count = matrix_.at(i, j).links;
        machine_.devices[device_of_[i]].links.push_back(std::move(link));
      }
    }
  }

  const TopoMatrix& matrix_;
  const std::string& file_;
  std::vector<std::string>& notes_;
  std::size_t size_;
  NcclMachine machine_;
  std::vector<std::size_t> device_of_;  // by row
};

}  // namespace

NcclMachine machine_of(const TopoMatrix& matrix, const std::string& file,
                       std::vector<std::string>& notes) {
  return TreeBuilder(matrix, file, notes).build();
}

}  // namespace rackrail::topology
