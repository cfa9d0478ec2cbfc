#include "runtime/launch/gpu_worker.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>
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
    return {object.at("host").get<std::string>(), object.at("devices").get<int>(),
            object.at("reason").get<std::string>(), object.at("nccl").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    throw RuntimeFailure(std::string("what a rank says of its GPU cannot be read: ") +
                         error.what());
  }
}

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

/// The device of rank `self`, which is one of its host's.
int device_of(const GpuSettings& settings, std::size_t self, const std::vector<GpuOffer>& offers) {
  const GpuOffer& own = offers[self];
  if (own.devices == 0) {
    throw RuntimeFailure(rank_text(self) + " is to compute on a GPU: " + own.reason);
  }
  int before = 0;
  for (std::size_t r = 0; r < self; ++r) {
    before += offers[r].host == own.host ? 1 : 0;
  }
  if (before >= own.devices && !settings.shares) {
    throw RuntimeFailure(rank_text(self) + " has no GPU of its own: found " +
                         std::to_string(own.devices) + " on " + own.host +
                         ", expected more, or --share-gpu");
  }
  return before % own.devices;
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
    const auto [found, is_new] = index.try_emplace(offers[r].host, hosts.size());
    if (is_new) {
      hosts.emplace_back();
    }
    hosts[found->second].push_back(Rank(r));
  }
  return hosts;
}

}  // namespace

std::string to_json(const GpuOffer& offer) {
  return nlohmann::json({{"host", offer.host},
                         {"devices", offer.devices},
                         {"reason", offer.reason},
                         {"nccl", offer.nccl}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

GpuOffer gpu_offer(bool wants_nccl, bool wants_cublas) {
  GpuOffer offer;
  offer.host = host_name();
  const CudaStatus cuda = cuda_status();
  offer.reason = cuda.unavailable.value_or("");
  offer.devices = cuda_device_count();
  if (offer.devices != 0 && wants_cublas) {
    if (const CublasStatus cublas = cublas_status(); cublas.unavailable) {
      offer.devices = 0;
      offer.reason = *cublas.unavailable;
    }
  }
  offer.nccl = wants_nccl ? nccl_library().status.unavailable.value_or("") : "it was not asked for";
  return offer;
}

GpuChoice agree_on_gpu(
    const GpuSettings& settings, Rank self, bool computes,
    const std::function<std::vector<std::string>(const std::string& own)>& exchange) {
  const GpuOffer offer = gpu_offer(settings.path != GpuPath::kStaged, computes);
  return choose_gpu(settings, self, exchange(to_json(offer)));
}

GpuChoice choose_gpu(const GpuSettings& settings, Rank self,
                     const std::vector<std::string>& offers) {
  std::vector<GpuOffer> parsed;
  for (const std::string& offer : offers) {
    parsed.push_back(parse_offer(offer));
  }
  GpuChoice choice;
  choice.device = device_of(settings, self.index(), parsed);
  choice.hosts = hosts_of(settings, parsed);
  if (settings.path == GpuPath::kStaged) {
    choice.path = DevicePath::kStaged;
    return choice;
  }
  choice.path = settings.path == GpuPath::kHybrid ? DevicePath::kHybrid : DevicePath::kNccl;
  for (std::size_t r = 0; r < parsed.size(); ++r) {
    if (parsed[r].nccl.empty()) {
      continue;
    }
    if (settings.path != GpuPath::kAuto) {
      throw RuntimeFailure(rank_text(r) + " is to use NCCL: " + parsed[r].nccl);
    }
    choice.path = DevicePath::kStaged;
    choice.note = "gradients go through pinned memory and the transport: " + rank_text(r) +
                  " has " + parsed[r].nccl;
    break;
  }
  return choice;
}

std::map<std::string, std::string> shared_gpu_variables(Rank rank) {
  std::map<std::string, std::string> variables{
      {"NCCL_HOSTID", "rackrail-rank-" + std::to_string(rank.value())}};
  // No network card either: one of them may refuse to talk to itself.
  const std::pair<const char*, const char*> defaults[] = {
      {"NCCL_NET", "Socket"}, {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_MNNVL_ENABLE", "0"}};
  for (const auto& [name, value] : defaults) {
    if (std::getenv(name) == nullptr) {
      variables[name] = value;
    }
  }
  return variables;
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
         .groups = choice.hosts,
         .nccl = choice.path == DevicePath::kStaged ? nullptr : &nccl_library().functions,
         .exchange = site.exchange,
         .epoch = site.epoch});
  };
}

}  // namespace rackrail::runtime
