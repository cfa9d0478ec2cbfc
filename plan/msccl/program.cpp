#include "plan/msccl/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <pugixml.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rackrail::plan::msccl {

namespace {

constexpr int kMostGpus = 4096;
constexpr int kLargestNumber = 1 << 20;
constexpr std::int64_t kMostCells = std::int64_t{1} << 22U;  // chunks of all GPUs
constexpr std::size_t kMostStepsRead = 4'000'000;

constexpr std::array<std::pair<std::string_view, StepType>, 9> kTypes{{
    {"nop", StepType::kNop},
    {"s", StepType::kSend},
    {"r", StepType::kReceive},
    {"cpy", StepType::kCopy},
    {"re", StepType::kReduce},
    {"rrc", StepType::kReceiveReduceCopy},
    {"rcs", StepType::kReceiveCopySend},
    {"rrs", StepType::kReceiveReduceSend},
    {"rrcs", StepType::kReceiveReduceCopySend},
}};

constexpr std::array<std::pair<std::string_view, Buffer>, 3> kBuffers{
    {{"i", Buffer::kInput}, {"o", Buffer::kOutput}, {"s", Buffer::kScratch}}};

constexpr std::array<std::pair<std::string_view, Collective>, 5> kCollectives{{
    {"allreduce", Collective::kAllReduce},
    {"allgather", Collective::kAllGather},
    {"reducescatter", Collective::kReduceScatter},
    {"all_gather", Collective::kAllGather},
    {"reduce_scatter", Collective::kReduceScatter},
}};

template <typename Table>
std::string names_of(const Table& table) {
  std::string names;
  for (const auto& [name, value] : table) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

template <typename Value, typename Table>
std::string_view name_in(const Table& table, Value value) {
  return std::ranges::find_if(table, [&](const auto& one) { return one.second == value; })->first;
}

/// An element with where it is: "gpu 3, tb 1, step 2".
class Element {
 public:
  Element(const std::string& file, pugi::xml_node node, std::string where)
      : file_(file), node_(node), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, where_, found, expected});
  }

  std::string text(const char* name) const {
    const pugi::xml_attribute attribute = node_.attribute(name);
    if (!attribute) {
      fail(fmt::format("no attribute '{}'", name), fmt::format("'{}'", name));
    }
    return attribute.value();
  }

  int number(const char* name, int least, int most) const {
    const std::string value = text(name);
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc{} || end != value.data() + value.size() || result < least ||
        result > most) {
      fail(fmt::format("{}=\"{:.40}\"", name, value),
           fmt::format("a whole number from {} to {}", least, most));
    }
    return result;
  }

  int number_or(const char* name, int least, int most, int otherwise) const {
    return node_.attribute(name) ? number(name, least, most) : otherwise;
  }

  template <typename Table>
  auto word(const char* name, const Table& table) const {
    const std::string value = text(name);
    const auto found =
        std::ranges::find_if(table, [&](const auto& one) { return one.first == value; });
    if (found == table.end()) {
      fail(fmt::format("{}=\"{:.40}\"", name, value), names_of(table));
    }
    return found->second;
  }

  std::vector<Element> children(const char* name) const {
    std::vector<Element> elements;
    for (const pugi::xml_node child : node_.children(name)) {
      elements.emplace_back(
          file_, child,
          fmt::format("{}{}{} {}", where_, where_.empty() ? "" : ", ", name, elements.size()));
    }
    return elements;
  }

 private:
  const std::string& file_;
  pugi::xml_node node_;
  std::string where_;
};

int size_of(const Gpu& gpu, Buffer buffer) {
  return buffer == Buffer::kInput    ? gpu.input_chunks
         : buffer == Buffer::kOutput ? gpu.output_chunks
                                     : gpu.scratch_chunks;
}

void require_inside(const Element& element, const Gpu& gpu, const Place& place, int count) {
  if (place.offset < 0 || place.offset + count > size_of(gpu, place.buffer)) {
    element.fail(fmt::format("chunks {} to {} of buffer {}", place.offset, place.offset + count - 1,
                             name_in(kBuffers, place.buffer)),
                 fmt::format("some of its {}", counted(size_of(gpu, place.buffer), "chunk")));
  }
}

Step read_step(const Element& element, const Gpu& gpu, const ThreadBlock& block) {
  Step step;
  step.type = element.word("type", kTypes);
  step.wanted_block = element.number("depid", -1, kLargestNumber);
  step.wanted_step = step.wanted_block < 0 ? -1 : element.number("deps", 0, kLargestNumber);
  step.is_wanted = element.number_or("hasdep", 0, 1, 0) == 1;
  if (step.type == StepType::kNop) {
    return step;
  }
  step.count = element.number("cnt", 1, kLargestNumber);
  step.source = {element.word("srcbuf", kBuffers), element.number("srcoff", -1, kLargestNumber)};
  step.target = {element.word("dstbuf", kBuffers), element.number("dstoff", -1, kLargestNumber)};
  if (sends(step.type) && block.send_to < 0) {
    element.fail("a step that sends", "a thread block whose 'send' is a rank");
  }
  if (receives(step.type) && block.receive_from < 0) {
    element.fail("a step that receives", "a thread block whose 'recv' is a rank");
  }
  // Where the source is the target, or what came, generators leave the other as it is.
  const bool reads = step.type == StepType::kSend || step.type == StepType::kCopy ||
                     step.type == StepType::kReduce || step.type == StepType::kReceiveReduceSend;
  const bool writes = step.type != StepType::kSend && step.type != StepType::kReceiveReduceSend;
  if (reads) {
    require_inside(element, gpu, step.source, step.count);
  }
  if (writes) {
    require_inside(element, gpu, step.target, step.count);
  }
  return step;
}

Gpu read_gpu(const Element& element, int rank, int ranks, std::size_t& steps) {
  Gpu gpu;
  gpu.input_chunks = element.number("i_chunks", 0, kLargestNumber);
  gpu.output_chunks = element.number("o_chunks", 0, kLargestNumber);
  gpu.scratch_chunks = element.number("s_chunks", 0, kLargestNumber);
  for (const Element& tb : element.children("tb")) {
    if (tb.number("id", 0, kLargestNumber) != std::ssize(gpu.blocks)) {
      tb.fail(fmt::format("id=\"{}\"", tb.text("id")),
              fmt::format("{}: thread blocks in the order of their ids, none left out",
                          gpu.blocks.size()));
    }
    ThreadBlock block;
    block.send_to = tb.number("send", -1, ranks - 1);
    block.receive_from = tb.number("recv", -1, ranks - 1);
    if (block.send_to == rank || block.receive_from == rank) {
      tb.fail(fmt::format("gpu {} as its own peer", rank), "another rank");
    }
    block.channel = tb.number("chan", 0, kLargestNumber);
    for (const Element& step : tb.children("step")) {
      steps += 1 + static_cast<std::size_t>(step.number_or("cnt", 0, kLargestNumber, 0));
      if (steps > kMostStepsRead) {
        step.fail("one step more",
                  fmt::format("at most {} steps and chunks of steps", kMostStepsRead));
      }
      block.steps.push_back(read_step(step, gpu, block));
    }
    gpu.blocks.push_back(std::move(block));
  }
  for (const Element& tb : element.children("tb")) {
    for (const Element& step : tb.children("step")) {
      const int wanted = step.number("depid", -1, kLargestNumber);
      if (wanted >= 0 && (wanted >= std::ssize(gpu.blocks) ||
                          step.number("deps", 0, kLargestNumber) >=
                              std::ssize(gpu.blocks[static_cast<std::size_t>(wanted)].steps))) {
        step.fail(fmt::format("a wait for step {} of tb {}", step.text("deps"), wanted),
                  "a step that is there");
      }
    }
  }
  return gpu;
}

}  // namespace

bool receives(StepType type) {
  return type == StepType::kReceive || type == StepType::kReceiveReduceCopy ||
         type == StepType::kReceiveCopySend || type == StepType::kReceiveReduceSend ||
         type == StepType::kReceiveReduceCopySend;
}

bool sends(StepType type) {
  return type == StepType::kSend || type == StepType::kReceiveCopySend ||
         type == StepType::kReceiveReduceSend || type == StepType::kReceiveReduceCopySend;
}

bool adds(StepType type) {
  return type == StepType::kReduce || type == StepType::kReceiveReduceCopy ||
         type == StepType::kReceiveReduceSend || type == StepType::kReceiveReduceCopySend;
}

bool looks_like_program(std::string_view content) {
  // Comments and a declaration may stand before the root.
  while (true) {
    content = trimmed(content);
    const std::string_view end = content.starts_with("<!--") ? "-->"
                                 : content.starts_with("<?") ? "?>"
                                                             : "";
    const std::size_t at = end.empty() ? content.npos : content.find(end);
    if (at == content.npos) {
      return content.starts_with("<algo") &&
             (content.size() == 5 || std::string_view(" \t\r\n>").find(content[5]) != content.npos);
    }
    content.remove_prefix(at + end.size());
  }
}

Program parse_program(const std::string& content, const std::string& file) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(content.data(), content.size());
  if (!parsed) {
    throw ConfigError(
        ErrorContext{file, fmt::format("byte {}", parsed.offset), parsed.description(), "XML"});
  }
  const Element root(file, document.child("algo"), "");
  if (!document.child("algo")) {
    root.fail("no element 'algo'", "an MSCCL program");
  }
  Program program;
  program.name = root.text("name");
  program.protocol = root.text("proto");
  program.collective = root.word("coll", kCollectives);
  program.channels = root.number("nchannels", 1, kLargestNumber);
  program.chunks = root.number("nchunksperloop", 1, kLargestNumber);
  program.is_in_place = root.number_or("inplace", 0, 1, 0) == 1;
  program.is_out_of_place = root.number_or("outofplace", 0, 1, program.is_in_place ? 0 : 1) == 1;
  const int ranks = root.number("ngpus", 1, kMostGpus);
  if (static_cast<std::int64_t>(program.chunks) * ranks > kMostCells) {
    root.fail(fmt::format("{} chunks on each of {} GPUs", program.chunks, ranks),
              fmt::format("at most {} together", kMostCells));
  }
  std::size_t steps = 0;
  for (const Element& gpu : root.children("gpu")) {
    if (gpu.number("id", 0, ranks - 1) != std::ssize(program.gpus)) {
      gpu.fail(fmt::format("id=\"{}\"", gpu.text("id")),
               fmt::format("{}: GPUs in the order of their ids", program.gpus.size()));
    }
    program.gpus.push_back(read_gpu(gpu, static_cast<int>(program.gpus.size()), ranks, steps));
  }
  if (std::ssize(program.gpus) != ranks) {
    root.fail(counted(std::ssize(program.gpus), "element") + " 'gpu'",
              fmt::format("{}, as 'ngpus' says", ranks));
  }
  return program;
}

std::string to_xml(const Program& program) {
  std::string text = fmt::format(
      "<algo name=\"{}\" proto=\"{}\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" "
      "coll=\"{}\" inplace=\"{:d}\" outofplace=\"{:d}\" minBytes=\"0\" maxBytes=\"0\">\n",
      program.name, program.protocol, program.channels, program.chunks, program.gpus.size(),
      name_in(kCollectives, program.collective), program.is_in_place, program.is_out_of_place);
  for (std::size_t g = 0; g < program.gpus.size(); ++g) {
    const Gpu& gpu = program.gpus[g];
    text += fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", g,
                        gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks);
    for (std::size_t b = 0; b < gpu.blocks.size(); ++b) {
      const ThreadBlock& block = gpu.blocks[b];
      text += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", b,
                          block.send_to, block.receive_from, block.channel);
      for (std::size_t s = 0; s < block.steps.size(); ++s) {
        const Step& step = block.steps[s];
        text += fmt::format(
            "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" "
            "dstoff=\"{}\" cnt=\"{}\" depid=\"{}\" deps=\"{}\" hasdep=\"{:d}\"/>\n",
            s, name_in(kTypes, step.type), name_in(kBuffers, step.source.buffer),
            step.source.offset, name_in(kBuffers, step.target.buffer), step.target.offset,
            step.count, step.wanted_block, step.wanted_step, step.is_wanted);
      }
      text += "    </tb>\n";
    }
    text += "  </gpu>\n";
  }
  return text + "</algo>\n";
}

}  // namespace rackrail::plan::msccl
