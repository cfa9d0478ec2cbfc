// How the interpreter of MSCCL++'s execution plans reads one, and what it refuses.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <tuple>

#include "tests/support/mscclpp_interpreter.hpp"

namespace rackrail::test {

namespace {

using nlohmann::json;

const std::set<std::string>& names() {
  static const std::set<std::string> all{
      "nop", "signal", "wait", "rlxsignal", "rlxwait",     "flush",
      "put", "pws",    "pwsf", "get",       "copy",        "re",
      "res", "rre",    "rres", "barrier",   "sem_acquire", "sem_release"};
  return all;
}

}  // namespace

void MscclppInterpreter::require(bool is_right, const std::string& what) {
  if (!is_right) {
    throw std::runtime_error(what);
  }
}

MscclppInterpreter::MscclppInterpreter(const std::string& text, int units, std::uint32_t seed)
    : units_(static_cast<std::size_t>(units)), random_(seed) {
  const json plan = json::parse(text);
  require(plan.at("protocol") == "Simple", "a protocol of packets");
  collective_ = plan.at("collective");
  is_in_place_ = plan.at("inplace");
  const json& gpus = plan.at("gpus");
  gpus_.resize(gpus.size());
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    require(gpus[g].at("id") == g, "GPUs out of order");
    read_buffers(gpus[g], gpus_[g]);
  }
  read_channels(gpus);
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    const json& blocks = gpus[g].at("threadblocks");
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      require(blocks[b].at("id") == b, "thread blocks out of order");
      read_block(blocks[b], gpus[g], gpus_[g]);
    }
  }
  begin();
}

/// What a buffer holds at first is known to the blocks of its own GPU alone: a peer that writes
/// before it has heard from there may be too early.
void MscclppInterpreter::begin() {
  const std::size_t first = actors_.size();
  actors_.resize(first + gpus_.size());
  for (Actor& actor : actors_) {
    actor.known.assign(actors_.size(), 0);
  }
  for (std::size_t g = 0; g < gpus_.size(); ++g) {
    for (const Block& block : gpus_[g].blocks) {
      actors_[block.actor].known[first + g] = 1;
    }
    for (std::vector<Cell>* cells : {&gpus_[g].input, &gpus_[g].output, &gpus_[g].scratch}) {
      for (Cell& cell : *cells) {
        cell.writer = {first + g, 1};
      }
    }
  }
}

void MscclppInterpreter::read_buffers(const json& gpu, Gpu& to) const {
  to.input_chunks = gpu.at("input_chunks");
  to.output_chunks = gpu.at("output_chunks");
  to.scratch_chunks = gpu.at("scratch_chunks");
  require(to.input_chunks > 0 && to.output_chunks > 0, "a buffer without chunks");
  to.input.resize(static_cast<std::size_t>(to.input_chunks) * units_);
  to.output.resize(static_cast<std::size_t>(to.output_chunks) * units_);
  to.scratch.resize(static_cast<std::size_t>(to.scratch_chunks) * units_);
  for (const json& semaphore : gpu.at("semaphores")) {
    const int value = semaphore.at("init_value");
    to.semaphores.push_back({value, value, {}});
  }
}

void MscclppInterpreter::read_channels(const json& gpus) {
  std::map<std::tuple<std::size_t, std::size_t, std::string>, std::vector<Channel*>> by_pair;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    for (const json& list : gpus[g].at("channels")) {
      const std::string type = list.at("channel_type");
      require(type == "memory" || type == "port", "a channel of type " + type);
      for (const std::size_t peer : list.at("connected_to")) {
        require(peer < gpus.size() && peer != g, "a channel to no other GPU");
        channels_.push_back({});
        Channel& channel = channels_.back();
        channel.from = g;
        channel.to = peer;
        channel.type = type;
        channel.actor = type == "port" ? add_actor() : SIZE_MAX;
        gpus_[g].channels[type].push_back(&channel);
        by_pair[{g, peer, type}].push_back(&channel);
      }
    }
  }
  for (auto& [key, list] : by_pair) {
    const auto& [from, to, type] = key;
    const std::vector<Channel*>& back = by_pair[{to, from, type}];
    require(back.size() == list.size(), "a channel without a partner");
    for (std::size_t k = 0; k < list.size(); ++k) {
      list[k]->back = back[k];
    }
  }
}

std::size_t MscclppInterpreter::add_actor() {
  actors_.emplace_back();
  return actors_.size() - 1;
}

void MscclppInterpreter::read_block(const json& block, const json& gpu, Gpu& to) {
  Block read;
  read.actor = add_actor();
  read.operations = block.at("ops");
  require(read.operations.size() <= 64, "more than 64 operations");
  for (const json& list : block.at("channels")) {
    std::vector<Channel*>& channels = read.channels[list.at("channel_type")];
    for (const std::size_t id : list.at("channel_ids")) {
      channels.push_back(to.channels[list.at("channel_type")].at(id));
    }
    require(channels.size() <= 16, "more than 16 channels");
  }
  for (const json& list : block.value("remote_buffer_refs", json::array())) {
    const std::string type = list.at("access_channel_type");
    for (const std::size_t id : list.at("remote_buffer_ids")) {
      const json& buffer = gpu.at("remote_buffers").at(id);
      const json& access = buffer.at("access_channel_types");
      require(std::ranges::find(access, json(type)) != access.end(), "a buffer of other access");
      read.buffers[type].emplace_back(buffer.at("rank").get<std::size_t>(),
                                      buffer.at("type").get<std::string>().at(0));
    }
    require(read.buffers[type].size() <= 16, "more than 16 buffers of peers");
  }
  for (const json& operation : read.operations) {
    require(names().contains(operation.at("name")),
            "an operation '" + operation.at("name").get<std::string>() + "'");
    require(operation.value("channel_ids", json::array()).size() <= 8, "more than 8 channels");
    for (const char* which : {"src_buff", "dst_buff"}) {
      require(operation.value(which, json::array()).size() <= 10, "more than 10 places");
    }
    for (const std::size_t id : operation.value("semaphore_ids", json::array())) {
      require(id < to.semaphores.size(), "no such semaphore");
    }
    require(operation.value("barrier_id", 0) < 16, "no such barrier");
  }
  to.blocks.push_back(std::move(read));
}

}  // namespace rackrail::test
