#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <pugixml.hpp>
#include <set>

#include "base/error.hpp"
#include "topology/readers/nccl_machine.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {
namespace {

constexpr int kDeepestNesting = 64;
constexpr std::size_t kMostDevices = 4096;
/// Of a machine, each joined to each.
constexpr std::size_t kMostCpus = 256;
constexpr double kMostTransfers = 1000;  // GT/s of a PCIe lane
constexpr std::int64_t kMostMegabits = 100'000'000;
/// Of a port. Speeds above are in other units: no port has 10 Tbit/s.
constexpr std::int64_t kMostPortMegabits = 10'000'000;
constexpr std::int64_t kMostPortSpeed = kMostPortMegabits * 1'000'000;

/// What a file with another root element is, and what to give instead.
struct OtherKind {
  std::string_view root;
  const char* found;
  const char* expected;
};
constexpr std::array kOtherKinds{
    OtherKind{"topology", "an hwloc topology (root 'topology')",
              "NCCL's topology of the machine (root 'system'): run any NCCL program there with "
              "NCCL_TOPO_DUMP_FILE=topo.xml"},
    OtherKind{"graphs", "an NCCL graph (root 'graphs'): the rings and trees that NCCL chose",
              "the topology that it chose them for (root 'system'), as NCCL_TOPO_DUMP_FILE writes "
              "it"},
    OtherKind{
        "algo", "an MSCCL schedule (root 'algo')",
        "a cluster; 'rackrail verify FILE' and 'rackrail simulate FILE --cluster ...' take it"},
    OtherKind{"nvidia_smi_log", "the output of 'nvidia-smi -q -x' (root 'nvidia_smi_log')",
              "the output of 'nvidia-smi topo -m', or what NCCL_TOPO_DUMP_FILE writes (root "
              "'system')"}};

/// The lines of a text, by offset.
class Lines {
 public:
  explicit Lines(const std::string& content) {
    for (std::size_t at = content.find('\n'); at != content.npos; at = content.find('\n', at + 1)) {
      ends_.push_back(static_cast<std::ptrdiff_t>(at));
    }
  }
  std::size_t at(std::ptrdiff_t offset) const {
    return 1 + static_cast<std::size_t>(std::lower_bound(ends_.begin(), ends_.end(), offset) -
                                        ends_.begin());
  }

 private:
  std::vector<std::ptrdiff_t> ends_;
};

class NcclParser {
 public:
  NcclParser(const std::string& file, const std::string& content)
      : file_(file), content_(content), lines_(content) {}

  NcclFile parse() {
    pugi::xml_document document;
    const pugi::xml_parse_result status = document.load_buffer(content_.data(), content_.size());
    if (!status) {
      throw ConfigError(ErrorContext{file_, fmt::format("line {}", lines_.at(status.offset)),
                                     status.description(), "XML that is complete"});
    }
    const pugi::xml_node root = document.document_element();
    const std::string name = root.name();
    if (name != "system") {
      for (const OtherKind& kind : kOtherKinds) {
        if (name == kind.root) fail(root, kind.found, kind.expected);
      }
      fail(root, fmt::format("root '{}'", name),
           "an NCCL topology (root 'system'), as NCCL_TOPO_DUMP_FILE writes it");
    }
    refuse_doubled_attributes(root);
    for (const pugi::xml_node cpu : root.children("cpu")) read_cpu(cpu);
    if (result_.machines.empty()) fail(root, "no 'cpu'", "at least one");
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const pugi::xml_node& element, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, where(element), found, expected});
  }

  std::string where(const pugi::xml_node& element) const {
    return fmt::format("line {}", lines_.at(element.offset_debug()));
  }

  /// The parser would take the first of them without a word.
  void refuse_doubled_attributes(const pugi::xml_node& root) const {
    for (pugi::xml_node node = root; node;) {
      std::set<std::string_view> names;
      for (const pugi::xml_attribute attribute : node.attributes()) {
        if (!names.insert(attribute.name()).second) {
          fail(node, fmt::format("attribute '{}' twice", attribute.name()), "each once");
        }
      }
      pugi::xml_node next = node.first_child();
      while (!next && node != root) {
        next = node.next_sibling();
        node = next ? node : node.parent();
      }
      node = next;
    }
  }

  void note(std::string text) {
    if (noted_.insert(text).second) result_.notes.push_back(std::move(text));
  }

  /// A whole number, none when the attribute is absent, empty or -1, which NCCL writes for that.
  std::optional<std::int64_t> number(const pugi::xml_node& element, const char* key,
                                     std::int64_t most) const {
    const std::string_view text = element.attribute(key).value();
    if (text.empty()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > most || value < -1) {
      fail(element, fmt::format("{}=\"{}\"", key, text),
           fmt::format("a whole number from 0 to {}, or -1", most));
    }
    return value < 0 ? std::nullopt : std::optional(value);
  }

  void read_cpu(const pugi::xml_node& cpu) {
    const std::string host_hash = cpu.attribute("host_hash").value();
    auto machine = std::find_if(result_.machines.begin(), result_.machines.end(),
                                [&](const NcclMachine& m) { return m.host_hash == host_hash; });
    if (machine == result_.machines.end()) {
      result_.machines.emplace_back();
      machine = result_.machines.end() - 1;
      machine->host_hash = host_hash;
      const std::optional<Bandwidth> rate =
          socket_rate(cpu.attribute("arch").value(), cpu.attribute("vendor").value(),
                      cpu.attribute("familyid").as_int(-1), cpu.attribute("modelid").as_int(-1));
      if (!rate) note("the file does not name a known CPU: 10 GB/s assumed between sockets");
      machine->socket_rate = rate.value_or(default_socket_rate());
    }
    machine_ = &*machine;
    if (machine_->cpus.size() == kMostCpus) {
      fail(cpu, fmt::format("more than {} CPUs of a machine", kMostCpus), "fewer");
    }
    machine_->cpus.emplace_back(cpu.attribute("numaid").value());
    read_children(cpu, std::nullopt, 0);
  }

  void read_children(const pugi::xml_node& parent, std::optional<std::size_t> parent_device,
                     int depth) {
    if (depth > kDeepestNesting) {
      fail(parent, fmt::format("more than {} nested devices", kDeepestNesting), "fewer");
    }
    for (const pugi::xml_node child : parent.children()) {
      const std::string_view name = child.name();
      if (name == "pci") {
        read_pci(child, parent_device, depth);
      } else if (name == "nic" && !parent_device) {
        PciDevice device;
        device.role = PciDevice::Role::kNic;
        device.is_described = true;
        device.where = where(child);
        read_nets(child, device);
        append(child, std::move(device), std::nullopt);
      }
    }
  }

  std::size_t append(const pugi::xml_node& element, PciDevice device,
                     std::optional<std::size_t> parent) {
    if (machine_->devices.size() == kMostDevices) {
      fail(element, fmt::format("more than {} devices", kMostDevices), "fewer");
    }
    device.parent = parent;
    device.cpu = machine_->cpus.size() - 1;
    machine_->devices.push_back(std::move(device));
    return machine_->devices.size() - 1;
  }

  void read_pci(const pugi::xml_node& element, std::optional<std::size_t> parent, int depth) {
    PciDevice device;
    device.bus_id = normalised_bus_id(element.attribute("busid").value());
    device.where = where(element);
    device.rate = pcie_rate(element);
    device.is_described = element.child("gpu") || element.child("nic");
    const std::string_view code = element.attribute("class").value();
    const pugi::xml_node gpu = element.child("gpu");
    const pugi::xml_node nic = element.child("nic");
    if (gpu || code.starts_with("0x03")) {
      device.role = PciDevice::Role::kGpu;
      device.device_class = gpu_model_by_pci(element.attribute("vendor").value(),
                                             element.attribute("device").value());
      if (gpu) read_gpu(gpu, device);
    } else if (nic || code.starts_with("0x02")) {
      device.role = PciDevice::Role::kNic;
      if (nic) read_nets(nic, device);
    } else if (element.child("pci") || code.starts_with("0x0604")) {
      device.role = PciDevice::Role::kBridge;
    } else {
      device.role = code.empty() ? PciDevice::Role::kUnknown : PciDevice::Role::kOther;
    }
    const std::size_t index = append(element, std::move(device), parent);
    read_children(element, index, depth + 1);
  }

  std::optional<Bandwidth> pcie_rate(const pugi::xml_node& element) {
    const std::string_view speed = element.attribute("link_speed").value();
    const std::optional<Bandwidth> lane = pcie_lane_rate(speed);
    double transfers = 0;
    const auto status = std::from_chars(speed.data(), speed.data() + speed.size(), transfers).ec;
    if (status == std::errc::result_out_of_range ||
        (status == std::errc{} && !(transfers >= 0 && transfers <= kMostTransfers))) {
      fail(element, fmt::format("link_speed=\"{}\"", speed), "such as '16.0 GT/s PCIe'");
    }
    if (!lane) return std::nullopt;
    const std::optional<std::int64_t> width = number(element, "link_width", 64);
    if (!width || *width == 0) note("a PCIe device without a width: 16 lanes assumed");
    return *lane * (width.value_or(0) == 0 ? 16 : *width);
  }

  void read_gpu(const pugi::xml_node& gpu, PciDevice& device) {
    device.number = number(gpu, "rank", 1'000'000);
    if (!device.number) device.number = number(gpu, "dev", 1'000'000);
    const std::string gcn = gpu.attribute("gcn").value();
    const int sm = static_cast<int>(number(gpu, "sm", 10'000).value_or(0));
    const std::string model = gcn.empty() ? gpu_model_by_sm(sm) : gpu_model_by_gcn(gcn);
    if (device.device_class.empty()) device.device_class = model;
    for (const pugi::xml_node link : gpu.children()) {
      const std::string_view kind = link.name();
      if (kind == "nvlink") {
        add_gpu_link(link, device, GpuLink::Kind::kNvlink, nvlink_rate(sm));
      } else if (kind == "xgmi") {
        add_gpu_link(link, device, GpuLink::Kind::kXgmi, xgmi_rate(gcn));
      } else if (kind == "c2c") {
        // In MB/s per link.
        const std::int64_t rate = number(link, "bw", kMostMegabits).value_or(0) *
                                  number(link, "count", 256).value_or(1) * 1'000'000;
        if (rate > 0) device.cpu_link = Bandwidth(rate);
      }
    }
  }

  void add_gpu_link(const pugi::xml_node& element, PciDevice& device, GpuLink::Kind kind,
                    std::optional<Bandwidth> each) const {
    const std::optional<std::int64_t> count = number(element, "count", 256);
    if (!count || *count == 0) return;
    GpuLink link;
    link.kind = kind;
    link.count = *count;
    link.each = each;
    link.target = normalised_bus_id(element.attribute("target").value());
    link.to = std::string_view(element.attribute("tclass").value()).starts_with("0x0680")
                  ? GpuLink::To::kSwitch
                  : GpuLink::To::kDevice;
    device.links.push_back(std::move(link));
  }

  /// A NIC carries what its ports do together. A port may be listed once more for collectives in
  /// the network (`coll`), with the same guid and port number.
  void read_nets(const pugi::xml_node& nic, PciDevice& device) {
    std::set<std::string> ports;
    for (const pugi::xml_node net : nic.children("net")) {
      const std::string guid = net.attribute("guid").value();
      const bool has_guid = guid.find_first_not_of("0x") != std::string::npos;
      const std::string port = fmt::format("{} {}", has_guid ? guid : net.attribute("name").value(),
                                           net.attribute("port").value());
      if (!ports.insert(port).second) continue;
      if (!device.number) device.number = number(net, "dev", 1'000'000);
      if (const std::string name = net.attribute("name").value(); !name.empty()) {
        device.names += (device.names.empty() ? "" : " ") + name;
      }
      device.has_no_gpudirect |= std::string_view(net.attribute("gdr").value()) == "0";
      if (const std::int64_t speed = number(net, "speed", kMostPortSpeed).value_or(0); speed > 0) {
        device.port_rate = device.port_rate.value_or(Bandwidth(0)) + port_rate(speed);
      }
    }
  }

  /// Of a speed in Mbit/s. Plugins over libfabric may pass on its figure undivided, which is in
  /// kbit/s (cxi of Slingshot) or bit/s.
  Bandwidth port_rate(std::int64_t speed) {
    if (speed <= kMostPortMegabits) return Bandwidth(speed * 125'000);
    const bool is_kilobits = speed / 1000 <= kMostPortMegabits;
    const Bandwidth rate(is_kilobits ? speed * 125 : speed / 8);
    note(
        fmt::format("NIC speed {} cannot be in Mbit/s, which is NCCL's unit: read as {}, {:g} "
                    "Gbit/s",
                    speed, is_kilobits ? "kbit/s" : "bit/s",
                    static_cast<double>(rate.bytes_per_second()) * 8e-9));
    return rate;
  }

  const std::string& file_;
  const std::string& content_;
  const Lines lines_;
  NcclFile result_;
  NcclMachine* machine_ = nullptr;
  std::set<std::string> noted_;
};

}  // namespace

std::string normalised_bus_id(const std::string& text) {
  std::string id;
  for (const char c : text) {
    id += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  // nvidia-smi writes domains with eight digits, the kernel with four.
  const std::size_t digits = id.find(':');
  if (digits != std::string::npos && digits > 4) {
    id.erase(0, std::min(digits - 4, id.find_first_not_of('0')));
  }
  return id;
}

const std::string& name_of(const PciDevice& device) {
  return device.bus_id.empty() ? device.label : device.bus_id;
}

NcclFile parse_nccl_xml(const std::string& file, const std::string& content) {
  return NcclParser(file, content).parse();
}

}  // namespace rackrail::topology
