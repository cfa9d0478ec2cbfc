#include "runtime/launch/state_transfer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "runtime/coordinator/clock.hpp"
#include "runtime/missed_peer.hpp"

namespace rackrail::runtime {
namespace {

using SteadyClock = std::chrono::steady_clock;

// In place of a plan's digest: a piece of a state, of which `slice` is the number and `transfer`
// how many there are.
constexpr std::uint64_t kStatePiece = 0x72616b2d73746174;
constexpr std::uint64_t kStateTaken = 0x72616b2d74616b6e;  // the answer to the last piece
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr std::size_t kMostInFlight = 8;
constexpr std::size_t kMostHeader = std::size_t{64} << 10;
constexpr Duration kNap = 20_ms;

std::span<const std::byte> state_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string digest_of(std::span<const std::byte> bytes) {
  return sha256_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// A line of JSON, a zero, parameters, momentum.
std::vector<std::byte> pack(const trainer::TrainingState& state) {
  std::vector<std::byte> values(std::as_bytes(state.parameters).begin(),
                                std::as_bytes(state.parameters).end());
  const std::span<const std::byte> momentum = std::as_bytes(state.momentum);
  values.insert(values.end(), momentum.begin(), momentum.end());
  const trainer::CheckpointInfo& info = state.info;
  const nlohmann::json header = {{"step", info.step},
                                 {"position", info.position},
                                 {"epoch", info.epoch},
                                 {"skipped_steps", info.skipped_steps},
                                 {"seed", info.seed},
                                 {"model", info.model_digest},
                                 {"training", info.training_digest},
                                 {"sha256", digest_of(values)}};
  std::string text = header.dump();
  text.push_back('\0');
  std::vector<std::byte> bytes(state_bytes(text).begin(), state_bytes(text).end());
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

trainer::LoadedCheckpoint unpack(std::span<const std::byte> bytes, std::size_t parameters) {
  const auto end = std::ranges::find(bytes, std::byte{0});
  const auto header_size = static_cast<std::size_t>(end - bytes.begin());
  const std::size_t half = parameters * sizeof(float);
  if (end == bytes.end() || bytes.size() - header_size - 1 != 2 * half) {
    throw RuntimeFailure("the state that another rank gave has " + std::to_string(bytes.size()) +
                         " bytes, expected " + std::to_string(2 * half) + " and a header");
  }
  const std::span<const std::byte> values = bytes.subspan(header_size + 1);
  trainer::LoadedCheckpoint loaded;
  try {
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    const nlohmann::json header = nlohmann::json::parse(text, text + header_size);
    loaded.info.step = header.at("step").get<std::int64_t>();
    loaded.info.position = header.at("position").get<std::int64_t>();
    loaded.info.epoch = header.at("epoch").get<std::int64_t>();
    loaded.info.skipped_steps = header.at("skipped_steps").get<std::int64_t>();
    loaded.info.seed = header.at("seed").get<std::uint64_t>();
    loaded.info.model_digest = header.at("model").get<std::string>();
    loaded.info.training_digest = header.at("training").get<std::string>();
    if (header.at("sha256").get<std::string>() != digest_of(values)) {
      throw RuntimeFailure("the state that another rank gave was damaged on its way");
    }
  } catch (const nlohmann::json::exception& error) {
    throw RuntimeFailure(std::string("the state that another rank gave cannot be read: ") +
                         error.what());
  }
  loaded.parameters.resize(parameters);
  loaded.momentum.resize(parameters);
  std::memcpy(loaded.parameters.data(), values.data(), half);
  std::memcpy(loaded.momentum.data(), values.data() + half, half);
  return loaded;
}

/// Ranks that have parameters.
std::vector<Rank> holders(const std::vector<Rank>& newcomers, std::size_t ranks) {
  std::vector<Rank> result;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (std::ranges::count(newcomers, Rank(rank)) == 0) {
      result.emplace_back(rank);
    }
  }
  return result;
}

}  // namespace

Rank giver_of(Rank newcomer, const std::vector<Rank>& newcomers, std::size_t ranks) {
  const std::vector<Rank> givers = holders(newcomers, ranks);
  if (givers.empty()) {
    throw RuntimeFailure("nobody has the parameters");
  }
  const auto number = std::ranges::find(newcomers, newcomer) - newcomers.begin();
  return givers[static_cast<std::size_t>(number) % givers.size()];
}

std::vector<Rank> receivers_of(Rank giver, const std::vector<Rank>& newcomers, std::size_t ranks) {
  std::vector<Rank> result;
  std::ranges::copy_if(newcomers, std::back_inserter(result), [&](Rank newcomer) {
    return giver_of(newcomer, newcomers, ranks) == giver;
  });
  return result;
}

StateTransfer::StateTransfer(Transport& transport, std::uint32_t epoch, std::function<void()> check,
                             Duration patience)
    : transport_(transport), epoch_(epoch), check_(std::move(check)), patience_(patience) {
  transport.set_handlers(
      [this](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
        on_piece(source, header, payload);
      },
      [](Rank peer, const std::string& reason) {
        throw MissedPeerError({.rank = peer, .why = reason, .silence = {}});
      });
}

StateTransfer::~StateTransfer() { transport_.set_handlers({}, {}); }

template <typename Condition>
void StateTransfer::progress_until(Rank peer, Condition condition) {
  SteadyClock::time_point moved = SteadyClock::now();
  while (!condition()) {
    check_();
    if (transport_.progress() != 0) {
      moved = SteadyClock::now();
      continue;
    }
    const Duration still(std::chrono::nanoseconds(SteadyClock::now() - moved).count() * 1000);
    if (still >= patience_) {
      throw MissedPeerError(
          {.rank = peer, .why = "no state moved for " + to_string(still), .silence = still});
    }
    transport_.wait(kNap);
  }
}

void StateTransfer::give(const std::vector<Rank>& receivers, const trainer::TrainingState& state) {
  if (receivers.empty()) {
    return;
  }
  const auto packed = std::make_shared<const std::vector<std::byte>>(pack(state));
  for (const Rank receiver : receivers) {
    send_to(receiver, packed);
  }
  // A transport may call a message sent that has yet to leave, for which it must be progressed.
  for (const Rank receiver : receivers) {
    progress_until(receiver, [&] { return std::ranges::count(taken_by_, receiver) != 0; });
  }
}

void StateTransfer::send_to(Rank receiver, const Packed& state) {
  const std::size_t pieces = (state->size() + kPieceBytes - 1) / kPieceBytes;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::span<const std::byte> payload = std::span(*state).subspan(
        piece * kPieceBytes, std::min(kPieceBytes, state->size() - piece * kPieceBytes));
    SliceHeader header;
    header.plan = kStatePiece;
    header.epoch = epoch_;
    header.transfer = static_cast<std::uint32_t>(pieces);
    header.slice = static_cast<std::uint32_t>(piece);
    header.bytes = static_cast<std::uint32_t>(payload.size());
    ++*in_flight_;
    transport_.send(receiver, header, payload, [state, in_flight = in_flight_] { --*in_flight; });
    progress_until(receiver, [this] { return *in_flight_ < kMostInFlight; });
  }
  progress_until(receiver, [this] { return *in_flight_ == 0; });
}

trainer::LoadedCheckpoint StateTransfer::receive(Rank giver, std::size_t parameters) {
  giver_ = giver;
  most_bytes_ = 2 * parameters * sizeof(float) + kMostHeader;
  progress_until(giver, [this] { return pieces_ != 0 && came_ == pieces_; });
  SliceHeader taken;
  taken.plan = kStateTaken;
  taken.epoch = epoch_;
  ++*in_flight_;
  transport_.send(giver, taken, {}, [in_flight = in_flight_] { --*in_flight; });
  progress_until(giver, [this] { return *in_flight_ == 0; });
  return unpack(received_, parameters);
}

void StateTransfer::on_piece(Rank source, const SliceHeader& header,
                             std::span<const std::byte> payload) {
  if (header.plan == kStateTaken && header.epoch == epoch_) {
    if (std::ranges::count(taken_by_, source) == 0) {
      taken_by_.push_back(source);
    }
    return;
  }
  if (header.plan != kStatePiece || header.epoch != epoch_ || source != giver_) {
    return;  // a pulse of a rank that is ready already
  }
  if (came_ == 0) {
    pieces_ = header.transfer;
  }
  const bool fits = header.slice == came_ && header.transfer == pieces_ && came_ < pieces_ &&
                    payload.size() <= most_bytes_ - received_.size();
  if (!fits) {
    throw RuntimeFailure("rank " + std::to_string(source.value()) +
                         " gave another state than the one that was expected");
  }
  received_.insert(received_.end(), payload.begin(), payload.end());
  ++came_;
}

}  // namespace rackrail::runtime
