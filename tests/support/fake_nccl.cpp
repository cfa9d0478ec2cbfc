#include "tests/support/fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

namespace {

using rackrail::runtime::NcclConfig;
using rackrail::runtime::NcclHandle;
using rackrail::runtime::NcclId;
using rackrail::runtime::NcclOperator;
using rackrail::runtime::NcclResult;
using rackrail::runtime::NcclStream;
using rackrail::runtime::NcclType;

std::size_t size_of(NcclType type) { return type == NcclType::kFloat32 ? sizeof(float) : 1; }

/// A call that moves data, of one rank.
struct Posted {
  std::string what;  ///< must be the same on all ranks of a collective, root and count included
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;
  NcclType type = NcclType::kUint8;
  int root = 0;
  int peer = -1;  ///< of a message; -1: a collective
  bool is_done = false;
};

/// The ranks of a communicator together.
struct Clique {
  explicit Clique(std::size_t size) : members(size) {}
  std::vector<ncclComm*> members;  ///< by rank; null until it has joined, or once it has gone
  std::size_t joined = 0;          ///< so far
  std::vector<int> origin;         ///< by rank: number in the first communicator
  /// By rank: collectives that are not carried out yet.
  std::vector<std::deque<std::shared_ptr<Posted>>> collectives =
      std::vector<std::deque<std::shared_ptr<Posted>>>(members.size());
  using Pair = std::pair<int, int>;
  std::map<Pair, std::deque<std::shared_ptr<Posted>>> sends;
  std::map<Pair, std::deque<std::shared_ptr<Posted>>> receives;
  bool is_aborted = false;

  /// Of a split or shrink that is under way.
  struct Request {
    bool is_there = false;
    int color = 0;
    int key = 0;
    std::vector<int> excluded;
    NcclHandle* child = nullptr;
  };
  std::vector<Request> requests = std::vector<Request>(members.size());
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  std::vector<std::shared_ptr<Posted>> pending;
  bool makes_child = false;
  bool is_finalizing = false;
  NcclResult error = NcclResult::kSuccess;
};

namespace rackrail::test {

struct FakeNccl::State {
  std::mutex mutex;
  std::map<std::thread::id, std::vector<std::string>> calls;
  std::map<std::string, std::shared_ptr<Clique>> by_id;
  std::set<ncclComm*> open;
  std::set<int> killed;
  std::map<std::string, NcclResult> to_fail;
  std::string last_error;
  int ids = 0;
  std::function<void(NcclStream)> on_enqueue;

  NcclResult refuse(const std::string& why) {
    last_error = why;
    return NcclResult::kInvalidUsage;
  }
  bool is_killed(const Clique& clique, int rank) const {
    return killed.contains(clique.origin[static_cast<std::size_t>(rank)]);
  }
  bool has_killed(const Clique& clique) const {
    for (std::size_t r = 0; r < clique.members.size(); ++r) {
      if (is_killed(clique, static_cast<int>(r))) {
        return true;
      }
    }
    return false;
  }
};

namespace {

FakeNccl::State* state = nullptr;
thread_local int depth = 0;
/// Of the group that is open on this thread, communicator by communicator.
thread_local std::vector<std::function<NcclResult()>> grouped;

/// Whether the call was told to fail; logs it in any case.
std::optional<NcclResult> log(const std::string& name, const std::string& details = "") {
  state->calls[std::this_thread::get_id()].push_back(name + (details.empty() ? "" : " ") + details);
  if (const auto found = state->to_fail.find(name); found != state->to_fail.end()) {
    const NcclResult result = found->second;
    state->to_fail.erase(found);
    state->last_error = name + " was told to fail";
    return result;
  }
  return std::nullopt;
}

ncclComm* new_member(std::shared_ptr<Clique> clique, int rank) {
  auto* comm = new ncclComm{.clique = std::move(clique), .rank = rank};
  comm->clique->members[static_cast<std::size_t>(rank)] = comm;
  ++comm->clique->joined;
  state->open.insert(comm);
  return comm;
}

float number(const Posted& op, std::size_t i) {
  float value = 0;
  std::memcpy(&value, op.from + i * sizeof value, sizeof value);
  return value;
}

void move_collective(const std::vector<std::shared_ptr<Posted>>& ops) {
  const std::string& what = ops[0]->what;
  const std::size_t n = ops.size();
  const std::size_t each = ops[0]->count * size_of(ops[0]->type);
  if (what.starts_with("broadcast") || what.starts_with("all_gather")) {
    const bool all = what.starts_with("all_gather");
    std::vector<std::byte> result;
    for (std::size_t r = 0; r < n; ++r) {
      if (all || static_cast<int>(r) == ops[0]->root) {
        result.insert(result.end(), ops[r]->from, ops[r]->from + each);
      }
    }
    for (const auto& op : ops) {
      std::memcpy(op->to, result.data(), result.size());
    }
    return;
  }
  const bool scatters = what.starts_with("reduce_scatter");
  std::vector<float> sum((scatters ? n : 1) * ops[0]->count, 0.0F);
  for (std::size_t r = n; r-- > 0;) {  // not the order in which the ranks are
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += number(*ops[r], i);
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    if (scatters) {
      std::memcpy(ops[r]->to, sum.data() + r * ops[0]->count, each);
    } else if (what.starts_with("all_reduce") || static_cast<int>(r) == ops[0]->root) {
      std::memcpy(ops[r]->to, sum.data(), each);
    }
  }
}

/// Carries out what all that take part have posted.
NcclResult advance(Clique& clique) {
  while (std::none_of(clique.collectives.begin(), clique.collectives.end(),
                      [](const auto& queue) { return queue.empty(); })) {
    std::vector<std::shared_ptr<Posted>> ops;
    for (auto& queue : clique.collectives) {
      ops.push_back(queue.front());
      queue.pop_front();
    }
    for (const auto& op : ops) {
      if (op->what != ops[0]->what) {
        return state->refuse("ranks disagree: '" + ops[0]->what + "' and '" + op->what + "'");
      }
    }
    move_collective(ops);
    for (const auto& op : ops) {
      op->is_done = true;
    }
  }
  for (auto& [pair, queue] : clique.sends) {
    auto& receives = clique.receives[pair];
    while (!queue.empty() && !receives.empty()) {
      const auto from = queue.front();
      const auto to = receives.front();
      queue.pop_front();
      receives.pop_front();
      if (from->count != to->count || from->type != to->type) {
        return state->refuse("a message is received as another than was sent");
      }
      std::memcpy(to->to, from->from, from->count * size_of(from->type));
      from->is_done = true;
      to->is_done = true;
    }
  }
  return NcclResult::kSuccess;
}

/// Makes the children once all ranks have asked for them (of a shrink: all that are left).
void make_children(Clique& clique) {
  const auto excluded_of = [&]() -> std::vector<int> {
    for (const Clique::Request& request : clique.requests) {
      if (!request.excluded.empty()) {
        return request.excluded;
      }
    }
    return {};
  };
  const std::vector<int> excluded = excluded_of();
  std::map<int, std::vector<std::pair<int, int>>> by_color;  // key, rank
  for (std::size_t r = 0; r < clique.requests.size(); ++r) {
    const int rank = static_cast<int>(r);
    const bool is_out = std::binary_search(excluded.begin(), excluded.end(), rank);
    if (!is_out && !clique.requests[r].is_there) {
      return;
    }
    if (!is_out && clique.requests[r].color >= 0) {
      by_color[clique.requests[r].color].emplace_back(clique.requests[r].key, rank);
    }
  }
  for (auto& [color, members] : by_color) {
    std::sort(members.begin(), members.end());
    auto child = std::make_shared<Clique>(members.size());
    for (const auto& [key, rank] : members) {
      child->origin.push_back(clique.origin[static_cast<std::size_t>(rank)]);
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto parent = static_cast<std::size_t>(members[i].second);
      *clique.requests[parent].child = new_member(child, static_cast<int>(i));
    }
  }
  for (std::size_t r = 0; r < clique.requests.size(); ++r) {
    clique.requests[r] = {};
    if (clique.members[r] != nullptr) {
      clique.members[r]->makes_child = false;
    }
  }
}

NcclResult state_of(ncclComm* comm) {
  Clique& clique = *comm->clique;
  if (comm->error != NcclResult::kSuccess) {
    return comm->error;
  }
  if (comm->makes_child) {
    make_children(clique);
    return comm->makes_child ? NcclResult::kInProgress : NcclResult::kSuccess;
  }
  if (clique.joined < clique.members.size()) {
    return NcclResult::kInProgress;
  }
  if (const NcclResult result = advance(clique); result != NcclResult::kSuccess) {
    return comm->error = result;
  }
  std::erase_if(comm->pending, [](const auto& op) { return op->is_done; });
  const bool is_cut_off =
      std::any_of(comm->pending.begin(), comm->pending.end(), [&](const auto& op) {
        return clique.is_aborted ||
               (op->peer < 0 ? state->has_killed(clique) : state->is_killed(clique, op->peer));
      });
  if (is_cut_off) {
    state->last_error = "connection closed by remote peer";
    return comm->error = NcclResult::kRemoteError;
  }
  return comm->pending.empty() ? NcclResult::kSuccess : NcclResult::kInProgress;
}

// ---- NCCL's functions ----

NcclResult get_version(int* version) {
  *version = 22809;
  return NcclResult::kSuccess;
}
const char* get_error_string(NcclResult result) {
  return result == NcclResult::kRemoteError ? "remote process exited or there was a network error"
                                            : "refused";
}
const char* get_last_error(NcclHandle /*comm*/) {
  thread_local std::string copy;
  const std::lock_guard lock(state->mutex);
  copy = state->last_error;
  return copy.c_str();
}

NcclResult get_unique_id(NcclId* id) {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log("get_unique_id")) {
    return *told;
  }
  *id = {};
  fmt::format_to_n(id->bytes, sizeof id->bytes - 1, "id{}", state->ids++);
  return NcclResult::kSuccess;
}

NcclResult comm_init_rank_config(NcclHandle* comm, int ranks, NcclId id, int rank,
                                 NcclConfig* config) {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log("comm_init_rank_config", fmt::format("{} of {}", rank, ranks))) {
    return *told;
  }
  if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0) {
    return state->refuse("a communicator that blocks");
  }
  auto& clique = state->by_id[id.bytes];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      clique->origin.push_back(r);
    }
  }
  *comm = new_member(clique, rank);
  return NcclResult::kInProgress;
}

NcclResult ask_for_child(NcclHandle comm, int color, int key, std::vector<int> excluded,
                         NcclHandle* child) {
  *child = nullptr;
  comm->clique->requests[static_cast<std::size_t>(comm->rank)] = {.is_there = true,
                                                                  .color = color,
                                                                  .key = key,
                                                                  .excluded = std::move(excluded),
                                                                  .child = child};
  comm->makes_child = true;
  return NcclResult::kInProgress;
}

NcclResult comm_split(NcclHandle comm, int color, int key, NcclHandle* child,
                      NcclConfig* /*config*/) {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log("comm_split", fmt::format("{} {}", color, key))) {
    return *told;
  }
  if (state_of(comm) != NcclResult::kSuccess) {
    return state->refuse("a split of a communicator that is in progress or has failed");
  }
  return ask_for_child(comm, color, key, {}, child);
}

NcclResult comm_shrink(NcclHandle comm, int* excluded, int count, NcclHandle* child,
                       NcclConfig* /*config*/, int flags) {
  const std::lock_guard lock(state->mutex);
  std::vector<int> out(excluded, excluded + count);
  if (const auto told =
          log("comm_shrink", fmt::format("without {} flags {}", fmt::join(out, " "), flags))) {
    return *told;
  }
  if (flags != 1 && state_of(comm) != NcclResult::kSuccess) {
    return state->refuse("a communicator that is in progress is shrunk");
  }
  if (comm->error != NcclResult::kSuccess) {  // as NCCL 2.28 does
    return comm->error;
  }
  comm->pending.clear();
  for (const int rank : out) {
    comm->clique->members[static_cast<std::size_t>(rank)] = nullptr;
  }
  return ask_for_child(comm, 0, comm->rank, std::move(out), child);
}

void leave(ncclComm* comm) {
  auto& place = comm->clique->members[static_cast<std::size_t>(comm->rank)];
  place = nullptr;
  state->open.erase(comm);
  delete comm;
}

NcclResult comm_finalize(NcclHandle comm) {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log("comm_finalize")) {
    return *told;
  }
  if (comm->is_finalizing) {
    return state->refuse("finalized twice");
  }
  comm->is_finalizing = true;
  return NcclResult::kInProgress;
}

NcclResult comm_destroy(NcclHandle comm) {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log("comm_destroy")) {
    return *told;
  }
  if (!comm->is_finalizing || comm->clique->is_aborted || !state->open.contains(comm)) {
    return state->refuse("destroyed without an orderly end");
  }
  leave(comm);
  return NcclResult::kSuccess;
}

NcclResult comm_abort(NcclHandle comm) {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log("comm_abort")) {
    return *told;
  }
  if (!state->open.contains(comm)) {
    return state->refuse("aborted twice");
  }
  comm->clique->is_aborted = true;
  for (auto& queue : comm->clique->collectives) {
    queue.clear();
  }
  leave(comm);
  return NcclResult::kSuccess;
}

NcclResult comm_get_async_error(NcclHandle comm, NcclResult* error) {
  const std::lock_guard lock(state->mutex);
  *error = state_of(comm);
  return NcclResult::kSuccess;
}

NcclResult group_start() {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log("group_start")) {
    return *told;
  }
  ++depth;
  return NcclResult::kSuccess;
}

NcclResult group_end() {
  const std::lock_guard lock(state->mutex);
  --depth;
  const auto told = log("group_end");
  NcclResult result = NcclResult::kSuccess;
  for (const auto& post : std::exchange(grouped, {})) {
    const NcclResult each = post();
    result = result == NcclResult::kSuccess || result == NcclResult::kInProgress ? each : result;
  }
  return told.value_or(result);
}

using Place = std::function<void(Clique&, std::shared_ptr<Posted>)>;

/// Takes an operation, now or at the end of the group.
NcclResult post(NcclHandle comm, const std::string& name, const std::string& details,
                NcclStream stream, Posted op, const Place& place) {
  const std::lock_guard lock(state->mutex);
  if (const auto told = log(name, details)) {
    return *told;
  }
  if (!state->open.contains(comm)) {
    return state->refuse("a communicator that has ended");
  }
  if (const NcclResult before = state_of(comm); before != NcclResult::kSuccess) {
    return before == NcclResult::kInProgress ? state->refuse("a communicator in progress") : before;
  }
  if (state->on_enqueue) {
    state->on_enqueue(stream);
  }
  const auto take = [comm, place, shared = std::make_shared<Posted>(std::move(op))] {
    place(*comm->clique, shared);
    comm->pending.push_back(shared);
    return NcclResult::kInProgress;
  };
  if (depth == 0) {
    return take();
  }
  grouped.push_back(take);
  return NcclResult::kSuccess;
}

std::string text(NcclType type) { return type == NcclType::kFloat32 ? "float" : "byte"; }

NcclResult send(const void* buffer, std::size_t count, NcclType type, int peer, NcclHandle comm,
                NcclStream stream) {
  const Clique::Pair pair{comm->rank, peer};
  return post(
      comm, "send", fmt::format("{} {} to {}", count, text(type), peer), stream,
      {.from = static_cast<const std::byte*>(buffer), .count = count, .type = type, .peer = peer},
      [pair](Clique& clique, std::shared_ptr<Posted> op) {
        clique.sends[pair].push_back(std::move(op));
      });
}

NcclResult recv(void* buffer, std::size_t count, NcclType type, int peer, NcclHandle comm,
                NcclStream stream) {
  const Clique::Pair pair{peer, comm->rank};
  return post(comm, "recv", fmt::format("{} {} from {}", count, text(type), peer), stream,
              {.to = static_cast<std::byte*>(buffer), .count = count, .type = type, .peer = peer},
              [pair](Clique& clique, std::shared_ptr<Posted> op) {
                clique.receives[pair].push_back(std::move(op));
              });
}

NcclResult post_collective(const char* name, const void* from, void* to, std::size_t count,
                           NcclType type, int root, NcclHandle comm, NcclStream stream) {
  const std::string details = fmt::format("{} {} root {}", count, text(type), root);
  return post(comm, name, details, stream,
              {.what = std::string(name) + " " + details,
               .from = static_cast<const std::byte*>(from),
               .to = static_cast<std::byte*>(to),
               .count = count,
               .type = type,
               .root = root},
              [rank = comm->rank](Clique& clique, std::shared_ptr<Posted> op) {
                clique.collectives[static_cast<std::size_t>(rank)].push_back(std::move(op));
              });
}

NcclResult all_reduce(const void* from, void* to, std::size_t count, NcclType type,
                      NcclOperator /*op*/, NcclHandle comm, NcclStream stream) {
  return post_collective("all_reduce", from, to, count, type, 0, comm, stream);
}
NcclResult reduce(const void* from, void* to, std::size_t count, NcclType type, NcclOperator /*op*/,
                  int root, NcclHandle comm, NcclStream stream) {
  return post_collective("reduce", from, to, count, type, root, comm, stream);
}
NcclResult reduce_scatter(const void* from, void* to, std::size_t count, NcclType type,
                          NcclOperator /*op*/, NcclHandle comm, NcclStream stream) {
  return post_collective("reduce_scatter", from, to, count, type, 0, comm, stream);
}
NcclResult broadcast(const void* from, void* to, std::size_t count, NcclType type, int root,
                     NcclHandle comm, NcclStream stream) {
  return post_collective("broadcast", from, to, count, type, root, comm, stream);
}
NcclResult all_gather(const void* from, void* to, std::size_t count, NcclType type, NcclHandle comm,
                      NcclStream stream) {
  return post_collective("all_gather", from, to, count, type, 0, comm, stream);
}

}  // namespace

FakeNccl::FakeNccl()
    : state_(std::make_unique<State>()),
      functions_{.get_version = get_version,
                 .get_error_string = get_error_string,
                 .get_last_error = get_last_error,
                 .get_unique_id = get_unique_id,
                 .comm_init_rank_config = comm_init_rank_config,
                 .comm_split = comm_split,
                 .comm_finalize = comm_finalize,
                 .comm_destroy = comm_destroy,
                 .comm_abort = comm_abort,
                 .comm_get_async_error = comm_get_async_error,
                 .group_start = group_start,
                 .group_end = group_end,
                 .send = send,
                 .recv = recv,
                 .all_reduce = all_reduce,
                 .reduce = reduce,
                 .reduce_scatter = reduce_scatter,
                 .broadcast = broadcast,
                 .all_gather = all_gather,
                 .comm_shrink = comm_shrink} {
  state = state_.get();
}

FakeNccl::~FakeNccl() { state = nullptr; }

std::vector<std::string> FakeNccl::calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->calls[std::this_thread::get_id()];
}

void FakeNccl::on_enqueue(std::function<void(runtime::NcclStream)> listener) {
  const std::lock_guard lock(state_->mutex);
  state_->on_enqueue = std::move(listener);
}

void FakeNccl::kill(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->killed.insert(rank);
}

void FakeNccl::fail_next(const std::string& call, runtime::NcclResult result) {
  const std::lock_guard lock(state_->mutex);
  state_->to_fail[call] = result;
}

std::size_t FakeNccl::open() const {
  const std::lock_guard lock(state_->mutex);
  return state_->open.size();
}

}  // namespace rackrail::test
