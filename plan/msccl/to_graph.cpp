#include "plan/msccl/to_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "plan/msccl/step_order.hpp"

namespace rackrail::plan::msccl {

namespace {

using Value = std::uint32_t;  // a number of what a chunk holds, another after each write
constexpr Value kNothing = 0;

/// One chunk of a message.
struct Message {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t chunk = 0;
  std::optional<TransferOp> op;        ///< none until something is done with what came
  std::vector<std::size_t> waits_for;  ///< messages
};

/// A chunk of a real buffer: what it holds, and who touched it since it was last written.
struct Cell {
  Value value = kNothing;
  std::vector<std::size_t> writers;  ///< steps; several where each added
  std::vector<std::size_t> readers;
  std::optional<std::size_t> message;  ///< of scratch: what came
};

/// The same chunk in the graph's only buffer.
struct GraphCell {
  Value value = kNothing;
  std::vector<std::size_t> messages;  ///< that made the value
};

class Converter {
 public:
  Converter(const Program& program, const std::string& file)
      : program_(program), file_(file), order_(program, file) {}

  TransferGraph convert() {
    fill_buffers();
    before_.resize(order_.size());
    sent_.resize(order_.size());
    for (const std::size_t step : order_.runnable()) {
      run(step);
    }
    check_results();
    return graph();
  }

 private:
  [[noreturn]] void fail(std::size_t step, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, order_.name(step), found, expected});
  }

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(program_.gpus.size()); }
  /// Of the part that a rank has of an all-gather or reduce-scatter.
  std::uint32_t part() const { return static_cast<std::uint32_t>(program_.chunks) / ranks(); }

  /// Where the buffer's first chunk is in the graph's buffer; none for scratch.
  std::optional<std::uint32_t> base_of(Buffer buffer, std::uint32_t gpu) const {
    if (buffer == Buffer::kScratch) {
      return std::nullopt;
    }
    const bool is_part =
        (program_.collective == Collective::kAllGather && buffer == Buffer::kInput) ||
        (program_.collective == Collective::kReduceScatter && buffer == Buffer::kOutput);
    return is_part ? gpu * part() : 0;
  }

  std::optional<std::uint32_t> chunk_at(std::uint32_t gpu, const Place& place, int i) const {
    const auto base = base_of(place.buffer, gpu);
    return base ? std::optional(*base + static_cast<std::uint32_t>(place.offset + i))
                : std::nullopt;
  }

  /// In place, input and output are one buffer, here called the input.
  Cell& cell_at(std::uint32_t gpu, const Place& place, int i) {
    const bool is_one = program_.is_in_place && place.buffer != Buffer::kScratch;
    const auto buffer = is_one ? Buffer::kInput : place.buffer;
    const std::uint32_t index =
        is_one ? *chunk_at(gpu, place, i) : static_cast<std::uint32_t>(place.offset + i);
    return cells_[{gpu, buffer, index}];
  }

  GraphCell& graph_cell(std::uint32_t gpu, std::uint32_t chunk) {
    return graph_cells_[static_cast<std::size_t>(gpu) * static_cast<std::size_t>(program_.chunks) +
                        chunk];
  }

  void fill_buffers() {
    if (program_.collective != Collective::kAllReduce &&
        program_.chunks % static_cast<int>(ranks()) != 0) {
      throw ConfigError(ErrorContext{
          file_, "", fmt::format("nchunksperloop=\"{}\" of {} GPUs", program_.chunks, ranks()),
          "a multiple of the GPUs, whose parts are equal"});
    }
    graph_cells_.resize(static_cast<std::size_t>(program_.chunks) * ranks());
    for (std::uint32_t gpu = 0; gpu < ranks(); ++gpu) {
      const bool has_part = program_.collective == Collective::kAllGather;
      const std::uint32_t first = has_part ? gpu * part() : 0;
      const auto count = has_part ? part() : static_cast<std::uint32_t>(program_.chunks);
      for (std::uint32_t c = first; c < first + count; ++c) {
        const Value value = ++last_value_;
        graph_cell(gpu, c).value = value;
        cells_[{gpu, Buffer::kInput, program_.is_in_place ? c : c - first}].value = value;
      }
    }
  }

  // The order of accesses.

  void read(std::size_t step, Cell& cell) {
    require_order(step, cell.writers);
    cell.readers.push_back(step);
  }

  /// What a copy replaces may be read until it comes, which the verifier of graphs looks at.
  static void copy(std::size_t step, Cell& cell, Value value) {
    cell.readers.clear();
    cell.writers.assign(1, step);
    cell.value = value;
  }

  void add(std::size_t step, Cell& cell, Value sum) {
    require_order(step, cell.writers);
    copy(step, cell, sum);
  }

  void require_order(std::size_t step, const std::vector<std::size_t>& others) const {
    for (const std::size_t other : others) {
      if (other != step && !order_.is_before(other, step)) {
        fail(step, "a chunk that " + order_.name(other) + " touches at the same time",
             "a wait for that step: one of the two writes");
      }
    }
  }

  /// The chunk in the graph that a step reads; what is there must be what the step finds.
  std::uint32_t read_chunk(std::size_t step, const Place& place, int i) {
    const std::uint32_t gpu = order_.place(step).gpu;
    const auto chunk = chunk_at(gpu, place, i);
    if (!chunk) {
      fail(step, "scratch that is sent on, or added to", "scratch that is added or copied from");
    }
    Cell& cell = cell_at(gpu, place, i);
    if (cell.value == kNothing) {
      fail(step, fmt::format("chunk {} before anything is there", place.offset + i),
           "a chunk that was received or is the GPU's own");
    }
    if (cell.value != graph_cell(gpu, *chunk).value) {
      fail(step, fmt::format("an older value of chunk {} than its place in the result has", *chunk),
           "one buffer for input and output: rackrail's schedules work in place");
    }
    read(step, cell);
    return *chunk;
  }

  /// What others are sent as it is may not be added to until it is written anew: the sender of the
  /// summand does not know when it has been read.
  void refuse_sum_of_sent(std::size_t step, const Cell& cell) const {
    for (const std::size_t reader : cell.readers) {
      if (reader != step && sends(order_.step(reader).type)) {
        fail(step, "a sum into what " + order_.name(reader) + " sent as it was",
             "sums before a chunk is sent on: rackrail does not read exchanges in which both sides "
             "add");
      }
    }
  }

  // Messages.

  /// What a step that sends puts under way, from the chunks of `place`.
  void send(std::size_t step, const Place& place) {
    const std::uint32_t gpu = order_.place(step).gpu;
    std::vector<std::size_t> waits = before_[step];
    waits.insert(waits.end(), own_.begin(), own_.end());
    const ThreadBlock& block = program_.gpus[gpu].blocks[order_.place(step).block];
    for (int i = 0; i < order_.step(step).count; ++i) {
      const std::uint32_t chunk = read_chunk(step, place, i);
      GraphCell& source = graph_cell(gpu, chunk);
      Message message{gpu, static_cast<std::uint32_t>(block.send_to), chunk, {}, waits};
      message.waits_for.insert(message.waits_for.end(), source.messages.begin(),
                               source.messages.end());
      sort_and_deduplicate(message.waits_for);
      sent_[step].push_back(messages_.size());
      sent_values_.push_back(source.value);
      messages_.push_back(std::move(message));
    }
    own_ = sent_[step];
  }

  /// Applies a message to a chunk of the graph.
  void apply(std::size_t step, std::size_t message, std::uint32_t chunk, TransferOp op,
             Value value) {
    Message& one = messages_[message];
    if (one.chunk != chunk) {
      fail(step, fmt::format("chunk {} at the place of chunk {}", one.chunk, chunk),
           "each chunk at its own place, or in scratch until it is added");
    }
    one.op = op;
    GraphCell& cell = graph_cell(one.to, chunk);
    if (op == TransferOp::kCopy) {
      cell.messages.clear();
    }
    cell.messages.push_back(message);
    cell.value = value;
    own_.push_back(message);
  }

  void receive(std::size_t step) {
    const Step& what = order_.step(step);
    const std::uint32_t gpu = order_.place(step).gpu;
    const std::vector<std::size_t>& came = sent_[order_.sender_of(step)];
    const bool keeps = what.type != StepType::kReceiveReduceSend;
    const Place& place = keeps ? what.target : what.source;
    for (int i = 0; i < what.count; ++i) {
      const std::size_t message = came[static_cast<std::size_t>(i)];
      const auto chunk = chunk_at(gpu, place, i);
      if (!chunk) {
        if (what.type != StepType::kReceive) {
          fail(step, "scratch that is sent on, or added to",
               "scratch that is added or copied from");
        }
        Cell& scratch = cell_at(gpu, place, i);
        copy(step, scratch, sent_values_[message]);
        scratch.message = message;
        continue;
      }
      if (!adds(what.type)) {
        copy(step, cell_at(gpu, place, i), sent_values_[message]);
        apply(step, message, *chunk, TransferOp::kCopy, sent_values_[message]);
        continue;
      }
      const Place& summand = what.source.offset < 0 ? what.target : what.source;
      refuse_sum_of_sent(step, cell_at(gpu, summand, i));
      if (read_chunk(step, summand, i) != *chunk) {
        fail(step, "a sum at the place of another chunk", "sums at the place of their chunk");
      }
      const Value sum = ++last_value_;
      if (keeps) {
        add(step, cell_at(gpu, place, i), sum);
      }
      apply(step, message, *chunk, TransferOp::kReduce, sum);
    }
  }

  /// `re` and `cpy`: from scratch they end a message, from input to output they change nothing.
  void work_locally(std::size_t step) {
    const Step& what = order_.step(step);
    const std::uint32_t gpu = order_.place(step).gpu;
    for (int i = 0; i < what.count; ++i) {
      Cell& source = cell_at(gpu, what.source, i);
      Cell& target = cell_at(gpu, what.target, i);
      const auto chunk = chunk_at(gpu, what.target, i);
      if (!chunk) {
        fail(step, "a result in scratch", "a result in the input or output");
      }
      if (what.source.buffer == Buffer::kScratch) {
        if (!source.message) {
          fail(step, "scratch before anything is there", "scratch that was received");
        }
        read(step, source);
        if (adds(what.type)) {
          refuse_sum_of_sent(step, target);
          read_chunk(step, what.target, i);
        }
        const Value value = adds(what.type) ? ++last_value_ : source.value;
        adds(what.type) ? add(step, target, value) : copy(step, target, value);
        apply(step, *source.message, *chunk,
              adds(what.type) ? TransferOp::kReduce : TransferOp::kCopy, value);
        source.message.reset();
      } else if (adds(what.type) || chunk_at(gpu, what.source, i) != chunk) {
        fail(step, "a local step between two chunks", "one from scratch, or from input to output");
      } else {
        read_chunk(step, what.source, i);
        copy(step, target, source.value);
      }
    }
  }

  void run(std::size_t step) {
    own_.clear();
    for (const std::size_t earlier : {order_.previous(step), order_.wanted(step)}) {
      if (earlier != kNoStep) {
        before_[step].insert(before_[step].end(), before_[earlier].begin(), before_[earlier].end());
      }
    }
    sort_and_deduplicate(before_[step]);
    const Step& what = order_.step(step);
    if (what.type == StepType::kCopy || what.type == StepType::kReduce) {
      work_locally(step);
    }
    if (receives(what.type)) {
      receive(step);
    }
    if (what.type == StepType::kReceiveReduceSend) {
      send_sum(step);
    } else if (sends(what.type)) {
      send(step, what.type == StepType::kSend ? what.source : what.target);
    }
    if (!own_.empty()) {
      before_[step] = own_;
    }
  }

  /// `rrs` sends a sum that its own buffer does not have and the graph's has.
  void send_sum(std::size_t step) {
    const Step& what = order_.step(step);
    const std::uint32_t gpu = order_.place(step).gpu;
    std::vector<Value> kept;
    for (int i = 0; i < what.count; ++i) {
      Cell& cell = cell_at(gpu, what.source, i);
      kept.push_back(
          std::exchange(cell.value, graph_cell(gpu, *chunk_at(gpu, what.source, i)).value));
    }
    send(step, what.source);
    for (int i = 0; i < what.count; ++i) {
      cell_at(gpu, what.source, i).value = kept[static_cast<std::size_t>(i)];
    }
  }

  static void sort_and_deduplicate(std::vector<std::size_t>& list) {
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }

  /// The output of each GPU is what the graph's buffer has.
  void check_results() {
    for (std::uint32_t gpu = 0; gpu < ranks(); ++gpu) {
      const bool is_part = program_.collective == Collective::kReduceScatter;
      const auto count = is_part ? part() : static_cast<std::uint32_t>(program_.chunks);
      for (std::uint32_t c = 0; c < count; ++c) {
        const Place place{Buffer::kOutput, static_cast<int>(c)};
        const std::uint32_t chunk = *chunk_at(gpu, place, 0);
        if (cell_at(gpu, place, 0).value != graph_cell(gpu, chunk).value) {
          throw ConfigError(
              ErrorContext{file_, fmt::format("gpu {}", gpu),
                           fmt::format("chunk {} of the output without the result", c),
                           "the result in the whole output"});
        }
      }
    }
  }

  /// Ids in an order in which each transfer comes after those that it waits for.
  TransferGraph graph() const {
    TransferGraph result(program_.name, program_.collective, ranks(),
                         std::vector<std::uint32_t>(static_cast<std::size_t>(program_.chunks), 1));
    if (program_.collective != Collective::kAllReduce) {
      std::vector<Rank> owners;
      for (std::uint32_t c = 0; c < static_cast<std::uint32_t>(program_.chunks); ++c) {
        owners.emplace_back(c / part());
      }
      result.set_owners(std::move(owners));
    }
    std::vector<TransferId> ids(messages_.size());
    for (const std::size_t message : topological_order()) {
      const Message& one = messages_[message];
      std::vector<TransferId> waits;
      for (const std::size_t other : one.waits_for) {
        waits.push_back(ids[other]);
      }
      ids[message] =
          result.add_transfer({Rank(one.from), Rank(one.to), one.chunk, 1, *one.op}, waits);
    }
    return result;
  }

  std::vector<std::size_t> topological_order() const {
    std::vector<std::vector<std::size_t>> next(messages_.size());
    std::vector<std::size_t> open(messages_.size());
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t m = 0; m < messages_.size(); ++m) {
      if (!messages_[m].op) {
        throw ConfigError(
            ErrorContext{file_, fmt::format("gpu {}", messages_[m].to),
                         fmt::format("chunk {} in scratch that no step uses", messages_[m].chunk),
                         "messages that are of use"});
      }
      open[m] = messages_[m].waits_for.size();
      for (const std::size_t other : messages_[m].waits_for) {
        next[other].push_back(m);
      }
      if (open[m] == 0) {
        ready.push(m);
      }
    }
    std::vector<std::size_t> order;
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (const std::size_t after : next[order.back()]) {
        if (--open[after] == 0) {
          ready.push(after);
        }
      }
    }
    return order;
  }

  const Program& program_;
  const std::string& file_;
  StepOrder order_;
  Value last_value_ = kNothing;
  std::map<std::tuple<std::uint32_t, Buffer, std::uint32_t>, Cell> cells_;  // GPU, buffer, chunk
  std::vector<GraphCell> graph_cells_;                                      // by GPU and chunk
  std::vector<Message> messages_;
  std::vector<Value> sent_values_;              // by message
  std::vector<std::vector<std::size_t>> sent_;  // by step: its messages, by chunk
  /// By step: messages that those after it wait for: its own, or where it has none those before it.
  /// What these waited for needs no other wait.
  std::vector<std::vector<std::size_t>> before_;
  std::vector<std::size_t> own_;  // of the step that runs
};

}  // namespace

TransferGraph to_graph(const Program& program, const std::string& file) {
  return Converter(program, file).convert();
}

}  // namespace rackrail::plan::msccl
