#include "runtime/launch/gpu_worker.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/training.hpp"
#include "runtime/nccl/library.hpp"

namespace rackrail::runtime {
namespace {

GpuOffer parse_offer(const std::string& text) {
  try {
    const nlohmann::json object = nlohmann::json::parse(text);
    GpuOffer offer{.host = object.at("host").get<std::string>(),
                   .devices = object.at("devices").get<std::vector<std::string>>(),
                   .reason = object.at("reason").get<std::string>(),
                   .nccl = object.at("nccl").get<std::string>(),
                   .machine = object.at("machine").get<std::string>(),
                   .nccl_host = object.at("nccl_host").get<std::string>(),
                   .device = std::nullopt,
                   .has_mps = object.at("mps").get<bool>()};
    if (const auto device = object.find("device"); device != object.end()) {
      offer.device = device->get<int>();
    }
    return offer;
  } catch (const nlohmann::json::exception& error) {
    throw RuntimeFailure(std::string("what a rank says of its GPU cannot be read: ") +
                         error.what());
  }
}

/// Whether nobody asks for NCCL.
bool is_by_transport(GpuPath path) { return path == GpuPath::kStaged || path == GpuPath::kDirect; }

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

/// The device of each rank, by its own numbers.
std::vector<std::size_t> devices_of(const GpuSettings& settings,
                                    const std::vector<GpuOffer>& offers) {
  std::vector<std::size_t> devices;
  std::map<std::pair<std::string, std::string>, std::size_t> users;  // of a host's device
  for (std::size_t r = 0; r < offers.size(); ++r) {
    const GpuOffer& offer = offers[r];
    const auto users_of = [&](std::size_t device) -> std::size_t& {
      return users[{offer.machine, offer.devices[device]}];
    };
    if (offer.devices.empty()) {
      throw RuntimeFailure(rank_text(r) + " is to compute on a GPU: " + offer.reason);
    }
    std::size_t best = 0;
    for (std::size_t d = 1; d < offer.devices.size(); ++d) {
      best = users_of(d) < users_of(best) ? d : best;
    }
    if (offer.device) {
      best = static_cast<std::size_t>(*offer.device);
      if (best >= offer.devices.size()) {
        throw RuntimeFailure(rank_text(r) + " is to use GPU " + std::to_string(best) + ": found " +
                             std::to_string(offer.devices.size()) + " on " + offer.host);
      }
    }
    if (users_of(best)++ > 0 && !settings.shares) {
      throw RuntimeFailure(rank_text(r) + " has no GPU of its own: found " +
                           std::to_string(offer.devices.size()) + " on " + offer.host +
                           ", expected more, or --share-gpu");
    }
    devices.push_back(best);
  }
  return devices;
}

/// Why these ranks cannot use NCCL; empty: they can.
std::string problem_with_nccl(const std::vector<GpuOffer>& offers,
                              const std::vector<std::size_t>& devices) {
  // By NCCL's notion of a host, and by device.
  std::map<std::pair<std::string, std::string>, std::size_t> first;
  for (std::size_t r = 0; r < offers.size(); ++r) {
    if (!offers[r].nccl.empty()) {
      return rank_text(r) + " has " + offers[r].nccl;
    }
    const std::string& device = offers[r].devices[devices[r]];
    const auto [found, is_new] = first.try_emplace({offers[r].nccl_host, device}, r);
    if (!is_new) {
      return rank_text(r) + " shares GPU " + device + " with " + rank_text(found->second) +
             ", which NCCL refuses unless all ranks have RACKRAIL_SHARE_GPU=1 or --share-gpu";
    }
  }
  return {};
}

/// Direct messages hang under MPS, which was seen with UCX 1.22 and driver 580: it has fewer queues
/// for each process, so a stream that waits for a message may hold up the copy that would bring it.
Staging staging_of(GpuPath path, const std::vector<GpuOffer>& offers) {
  const auto served =
      std::find_if(offers.begin(), offers.end(), [](const GpuOffer& each) { return each.has_mps; });
  if (path == GpuPath::kStaged) {
    return Staging::kAlways;
  }
  if (served == offers.end()) {
    return path == GpuPath::kDirect ? Staging::kNever : Staging::kWhereNeeded;
  }
  if (path == GpuPath::kDirect) {
    throw RuntimeFailure("--gpu-path direct: the GPU of " +
                         rank_text(static_cast<std::size_t>(served - offers.begin())) +
                         " is served by CUDA's MPS, under which direct messages hang; expected "
                         "staged, nccl or hybrid");
  }
  return Staging::kAlways;
}

RankGroups hosts_of(const GpuSettings& settings, const std::vector<GpuOffer>& offers) {
  std::size_t count = 0;
  for (const auto& host : settings.hosts) {
    count += host.size();
  }
  if (count == offers.size()) {
    return settings.hosts;
  }
  RankGroups hosts;  // after a loss, what the leader said holds no more
  std::map<std::string, std::size_t> index;
  for (std::size_t r = 0; r < offers.size(); ++r) {
    const auto [found, is_new] = index.try_emplace(offers[r].machine, hosts.size());
    if (is_new) {
      hosts.emplace_back();
    }
    hosts[found->second].push_back(Rank(r));
  }
  return hosts;
}

/// Whether this process has no other thread; false also where the kernel does not say.
bool is_only_thread() {
  std::error_code error;
  const std::filesystem::directory_iterator threads("/proc/self/task", error);
  return !error && std::distance(begin(threads), end(threads)) == 1;
}

/// Another on each machine, and after each start of one; empty where the kernel has none.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace

std::string to_json(const GpuOffer& offer) {
  nlohmann::json json = {{"host", offer.host},       {"devices", offer.devices},
                         {"reason", offer.reason},   {"nccl", offer.nccl},
                         {"machine", offer.machine}, {"nccl_host", offer.nccl_host},
                         {"mps", offer.has_mps}};
  if (offer.device) {
    json["device"] = *offer.device;
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

GpuOffer gpu_offer(std::optional<int> device, bool wants_nccl, bool wants_cublas) {
  GpuOffer offer;
  offer.host = host_name();
  const char* nccl_host = std::getenv("NCCL_HOSTID");
  offer.machine = offer.host + " " + boot_id();
  offer.nccl_host = nccl_host == nullptr ? offer.machine : nccl_host;
  offer.device = device;
  const CudaStatus cuda = cuda_status();
  offer.reason = cuda.unavailable.value_or("");
  offer.has_mps = cuda.has_mps;
  offer.devices = cuda_devices();
  if (!offer.devices.empty() && wants_cublas) {
    if (const CublasStatus cublas = cublas_status(); cublas.unavailable) {
      offer.devices.clear();
      offer.reason = *cublas.unavailable;
    }
  }
  offer.nccl = wants_nccl ? nccl_library().status.unavailable.value_or("") : "it was not asked for";
  return offer;
}

GpuChoice agree_on_gpu(
    const GpuSettings& settings, Rank self, const GpuWish& wish,
    const std::function<std::vector<std::string>(const std::string& own)>& exchange) {
  GpuOffer offer = gpu_offer(wish.device, !is_by_transport(settings.path), wish.computes);
  if (!wish.no_nccl.empty()) {
    offer.nccl = wish.no_nccl;
  }
  return choose_gpu(settings, self, exchange(to_json(offer)));
}

GpuChoice choose_gpu(const GpuSettings& settings, Rank self,
                     const std::vector<std::string>& offers) {
  std::vector<GpuOffer> parsed;
  parsed.reserve(offers.size());
  for (const std::string& offer : offers) {
    parsed.push_back(parse_offer(offer));
  }
  const std::vector<std::size_t> devices = devices_of(settings, parsed);
  GpuChoice choice;
  choice.device = static_cast<int>(devices[self.index()]);
  choice.hosts = hosts_of(settings, parsed);
  choice.staging = staging_of(settings.path, parsed);
  if (is_by_transport(settings.path)) {
    choice.path = DevicePath::kTransport;
    return choice;
  }
  choice.path = settings.path == GpuPath::kHybrid ? DevicePath::kHybrid : DevicePath::kNccl;
  const std::string problem = problem_with_nccl(parsed, devices);
  if (problem.empty()) {
    return choice;
  }
  if (settings.path != GpuPath::kAuto) {
    throw RuntimeFailure("NCCL cannot be used: " + problem);
  }
  choice.path = DevicePath::kTransport;
  choice.note = "gradients go over the transport: " + problem;
  return choice;
}

std::map<std::string, std::string> shared_gpu_variables(Rank rank, bool is_here) {
  std::map<std::string, std::string> variables{
      {"NCCL_HOSTID", "rackrail-rank-" + std::to_string(rank.value())}};
  const auto set_default = [&](const char* name, const char* value) {
    if (std::getenv(name) == nullptr) {
      variables[name] = value;
    }
  };
  // No network card: one of them may refuse to talk to itself.
  set_default("NCCL_NET", "Socket");
  set_default("NCCL_MNNVL_ENABLE", "0");
  if (is_here) {
    set_default("NCCL_SOCKET_IFNAME", "lo");
  }
  return variables;
}

std::optional<std::string> share_gpu_as(Rank rank, bool is_here) {
  const std::map<std::string, std::string> variables = shared_gpu_variables(rank, is_here);
  if (is_only_thread()) {
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    return std::nullopt;
  }
  std::string missing;
  for (const auto& [name, value] : variables) {
    if (std::getenv(name.c_str()) == nullptr) {
      missing.append(" ").append(name).append("=").append(value);
    }
  }
  return missing.empty() ? std::nullopt
                         : std::optional(
                               "no NCCL for ranks that share a GPU: the process has other "
                               "threads already, so that its environment must have" +
                               missing + " from its start");
}

GpuWorker::GpuWorker(GpuChoice choice)
    : choice_(std::move(choice)), compute_(make_cuda_compute(choice_.device)) {}

MakeExecutor GpuWorker::make_executor() const {
  return [make = device_executors(choice_, compute_->stream()),
          compute = compute_](const ExecutorSite& site) { return make(site); };
}

MakeExecutor device_executors(const GpuChoice& choice, void* stream) {
  return [choice, stream](const ExecutorSite& site) {
    return make_device_plan_executor(
        site.plan, site.self, site.transport,
        {.device = choice.device,
         .stream = stream,
         .path = choice.path,
         .staging = choice.staging,
         .groups = choice.hosts,
         .nccl = choice.path == DevicePath::kTransport ? nullptr : &nccl_library().functions,
         .exchange = site.exchange,
         .is_over = site.is_over,
         .epoch = site.epoch});
  };
}

}  // namespace rackrail::runtime
