#include "plan/mscclpp/program.hpp"

#include <nlohmann/json.hpp>

#include "plan/json_layout.hpp"

namespace rackrail::plan::mscclpp {

namespace {

using Json = nlohmann::ordered_json;

const char* name_of(ChannelType type) { return type == ChannelType::kMemory ? "memory" : "port"; }

const char* name_of(Buffer buffer) {
  switch (buffer) {
    case Buffer::kInput:
      return "i";
    case Buffer::kOutput:
      return "o";
    case Buffer::kScratch:
      return "s";
  }
  return "";
}

const char* name_of(OperationType type) {
  switch (type) {
    case OperationType::kSynchronize:
      return "nop";
    case OperationType::kSignal:
      return "signal";
    case OperationType::kWait:
      return "wait";
    case OperationType::kPut:
      return "put";
    case OperationType::kPutSignalAndFlush:
      return "pwsf";
    case OperationType::kReduce:
      return "re";
  }
  return "";
}

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "allreduce";
    case Collective::kAllGather:
      return "allgather";
    case Collective::kReduceScatter:
      return "reducescatter";
  }
  return "";
}

Json json_of(const std::vector<Place>& places) {
  Json list = Json::array();
  for (const Place& place : places) {
    Json one;
    if (place.remote >= 0) {
      one["buffer_id"] = place.remote;
    } else {
      one["type"] = name_of(place.buffer);
    }
    one["index"] = place.index;
    one["size"] = place.count;
    list.push_back(std::move(one));
  }
  return list;
}

Json json_of(const Operation& operation, const ThreadBlock& block) {
  Json json{{"name", name_of(operation.type)}};
  if (!operation.sources.empty()) {
    json["src_buff"] = json_of(operation.sources);
    json["dst_buff"] = json_of(operation.targets);
    if (block.slices > 1) {
      json["tbg_info"] = {{"tb_id", block.slice}, {"tbg_size", block.slices}};
    }
  }
  if (!operation.channels.empty()) {
    json["channel_ids"] = operation.channels;
    json["channel_type"] = name_of(operation.channel_type);
  }
  if (operation.type == OperationType::kReduce) {
    json["reduce_op"] = "sum";
  }
  return json;
}

Json json_of(const ThreadBlock& block, std::size_t id) {
  Json json{{"id", id}, {"ops", Json::array()}};
  for (const Operation& operation : block.operations) {
    json["ops"].push_back(json_of(operation, block));
  }
  json["channels"] = Json::array();
  json["remote_buffer_refs"] = Json::array();
  for (const ChannelType type : kChannelTypes) {
    if (!of(block.channels, type).empty()) {
      json["channels"].push_back(
          {{"channel_type", name_of(type)}, {"channel_ids", of(block.channels, type)}});
    }
    if (!of(block.buffers, type).empty()) {
      json["remote_buffer_refs"].push_back(
          {{"access_channel_type", name_of(type)}, {"remote_buffer_ids", of(block.buffers, type)}});
    }
  }
  return json;
}

Json json_of(const Gpu& gpu, std::size_t id) {
  Json json{{"id", id},
            {"input_chunks", gpu.input_chunks},
            {"output_chunks", gpu.output_chunks},
            {"scratch_chunks", gpu.scratch_chunks},
            {"threadblocks", Json::array()},
            {"channels", Json::array()},
            {"remote_buffers", Json::array()},
            {"semaphores", Json::array()}};
  for (std::size_t b = 0; b < gpu.blocks.size(); ++b) {
    json["threadblocks"].push_back(json_of(gpu.blocks[b], b));
  }
  for (const ChannelType type : kChannelTypes) {
    if (!of(gpu.channels, type).empty()) {
      json["channels"].push_back(
          {{"channel_type", name_of(type)}, {"connected_to", of(gpu.channels, type)}});
    }
  }
  for (const RemoteBuffer& buffer : gpu.remote_buffers) {
    json["remote_buffers"].push_back(
        {{"rank", buffer.rank},
         {"type", name_of(buffer.buffer)},
         {"access_channel_types", Json::array({name_of(buffer.access)})}});
  }
  return json;
}

}  // namespace

std::string to_json(const Program& program) {
  Json json{{"name", program.name},
            {"collective", name_of(program.collective)},
            {"protocol", "Simple"},
            {"inplace", true},
            {"reuse_resources", false},
            {"gpus", Json::array()},
            {"num_threads_per_block", 1024},
            {"use_double_scratch_buffer", false},
            {"buffer_alignment", kAlignment},
            {"min_message_size", program.least_bytes},
            {"max_message_size", program.most_bytes}};
  for (std::size_t g = 0; g < program.gpus.size(); ++g) {
    json["gpus"].push_back(json_of(program.gpus[g], g));
  }
  return with_compact_lists(json.dump(1)) + "\n";
}

}  // namespace rackrail::plan::mscclpp
