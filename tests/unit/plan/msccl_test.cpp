#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/msccl/from_graph.hpp"
#include "plan/msccl/program.hpp"
#include "plan/msccl/to_graph.hpp"
#include "plan/verifier.hpp"
#include "tests/support/msccl_interpreter.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/plan/example_graphs.hpp"

namespace rackrail::plan::msccl {

namespace {

std::string step(const char* type, int chunk, const char* waits = "", const char* buffer = "i") {
  const std::string place = std::to_string(chunk);
  const std::string wait = *waits == '\0' ? "depid=\"-1\" deps=\"-1\"" : waits;
  return std::string("<step s=\"0\" type=\"") + type + "\" srcbuf=\"" + buffer + "\" srcoff=\"" +
         place + "\" dstbuf=\"" + buffer + "\" dstoff=\"" + place + "\" cnt=\"1\" " + wait +
         " hasdep=\"0\"/>";
}

std::string block(int id, int send, int receive, const std::string& steps) {
  return "<tb id=\"" + std::to_string(id) + "\" send=\"" + std::to_string(send) + "\" recv=\"" +
         std::to_string(receive) + "\" chan=\"0\">" + steps + "</tb>";
}

std::string gpu(int id, const std::string& blocks, int scratch = 0) {
  return "<gpu id=\"" + std::to_string(id) + "\" i_chunks=\"1\" o_chunks=\"0\" s_chunks=\"" +
         std::to_string(scratch) + "\">" + blocks + "</gpu>";
}

/// An all-reduce of one chunk in place.
std::string all_reduce(int ranks, const std::string& gpus) {
  return "<!-- made for a test -->\n<algo name=\"test\" proto=\"Simple\" nchannels=\"1\" "
         "nchunksperloop=\"1\" ngpus=\"" +
         std::to_string(ranks) + "\" coll=\"allreduce\" inplace=\"1\">" + gpus + "</algo>";
}

/// Rank 0 adds what rank 1 has and sends it back.
std::string there_and_back() {
  return all_reduce(2, gpu(0, block(0, -1, 1, step("rrc", 0)) +
                                  block(1, 1, -1, step("s", 0, "depid=\"0\" deps=\"0\""))) +
                           gpu(1, block(0, 0, -1, step("s", 0)) + block(1, -1, 0, step("r", 0))));
}

/// "found" of the error that reading or converting raises.
std::string problem_of(const std::string& xml) {
  try {
    to_graph(parse_program(xml, "x.xml"), "x.xml");
  } catch (const ConfigError& error) {
    return error.context().where + ": " + error.context().found;
  }
  return "nothing";
}

void check_conversion(const Program& program) {
  test::check_msccl_result(program);
  const VerifyReport report = verify(to_graph(program, "x.xml"), nullptr);
  CAPTURE(report.problems);
  CHECK(report.ok());
}

}  // namespace

TEST_CASE("a small MSCCL program becomes the transfers that it says", "[msccl]") {
  CHECK(looks_like_program(there_and_back()));
  CHECK_FALSE(looks_like_program("<system version=\"1\"/>"));
  CHECK_FALSE(looks_like_program("<algorithm/>"));
  const Program program = parse_program(there_and_back(), "x.xml");
  const TransferGraph graph = to_graph(program, "x.xml");
  REQUIRE(graph.transfers().size() == 2);
  CHECK(graph.transfers()[0].src == Rank(1));
  CHECK(graph.transfers()[0].op == TransferOp::kReduce);
  CHECK(graph.transfers()[1].dst == Rank(1));
  CHECK(graph.transfers()[1].op == TransferOp::kCopy);
  REQUIRE(graph.dependencies(TransferId(1)).size() == 1);
  CHECK(graph.dependencies(TransferId(1))[0] == TransferId(0));
  check_conversion(program);
}

TEST_CASE("what comes into scratch counts where it is added", "[msccl]") {
  const std::string from_scratch =
      "<step s=\"1\" type=\"re\" srcbuf=\"s\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"1\" "
      "depid=\"-1\" deps=\"-1\" hasdep=\"1\"/>";
  const std::string xml =
      all_reduce(2, gpu(0,
                        block(0, -1, 1, step("r", 0, "", "s") + from_scratch) +
                            block(1, 1, -1, step("s", 0, "depid=\"0\" deps=\"1\"")),
                        1) +
                        gpu(1, block(0, 0, -1, step("s", 0)) + block(1, -1, 0, step("r", 0))));
  const TransferGraph graph = to_graph(parse_program(xml, "x.xml"), "x.xml");
  REQUIRE(graph.transfers().size() == 2);
  CHECK(graph.transfers()[0].op == TransferOp::kReduce);
  check_conversion(parse_program(xml, "x.xml"));
}

TEST_CASE("programs that cannot be right are refused at their step", "[msccl]") {
  // Without the wait, rank 0 may send before it has added.
  std::string race = there_and_back();
  race.replace(race.find("depid=\"0\""), 9, "depid=\"-1\"");
  CHECK(problem_of(race) ==
        "gpu 0, tb 0, step 0: a sum into what gpu 0, tb 1, step 0 sent as it was");
  // Two blocks add to one chunk, and neither waits.
  const std::string both = all_reduce(
      3, gpu(0, block(0, -1, 1, step("rrc", 0)) + block(1, -1, 2, step("rrc", 0))) +
             gpu(1, block(0, 0, -1, step("s", 0))) + gpu(2, block(0, 0, -1, step("s", 0))));
  CHECK(problem_of(both) ==
        "gpu 0, tb 1, step 0: a chunk that gpu 0, tb 0, step 0 touches at the same time");
  // Each waits for the other.
  const std::string circle = all_reduce(2, gpu(0, block(0, 1, 1, step("r", 0) + step("s", 0))) +
                                               gpu(1, block(0, 0, 0, step("r", 0) + step("s", 0))));
  CHECK(problem_of(circle) == "gpu 0, tb 0, step 0: a wait that never ends");
  const std::string lost = all_reduce(2, gpu(0, block(0, 1, -1, step("s", 0))) + gpu(1, ""));
  CHECK(problem_of(lost) == "gpu 0, tb 0, step 0: a send that gpu 1 does not receive");
  const std::string outside =
      all_reduce(2, gpu(0, block(0, 1, -1, step("s", 1))) + gpu(1, block(0, -1, 0, step("r", 0))));
  CHECK(problem_of(outside) == "gpu 0, tb 0, step 0: chunks 1 to 1 of buffer i");
  const std::string both_add =
      all_reduce(2, gpu(0, block(0, 1, 1, step("s", 0) + step("rrc", 0))) +
                        gpu(1, block(0, 0, 0, step("s", 0) + step("rrc", 0))));
  CHECK(problem_of(both_add) ==
        "gpu 0, tb 0, step 1: a sum into what gpu 0, tb 0, step 0 sent as it was");
  CHECK(problem_of("<algo name=\"a\"") != "nothing");
  CHECK(problem_of(all_reduce(2, gpu(0, ""))) == ": 1 element 'gpu'");
  CHECK(problem_of(all_reduce(2, gpu(0, block(0, 0, -1, "")) + gpu(1, ""))) ==
        "gpu 0, tb 0: gpu 0 as its own peer");
}

TEST_CASE("an output without the result is refused", "[msccl]") {
  // Out of place: the sum stays in the input.
  std::string xml = there_and_back();
  xml.replace(xml.find("inplace=\"1\""), 11, "inplace=\"0\"");
  for (std::size_t at = 0; (at = xml.find("o_chunks=\"0\"", at)) != std::string::npos;) {
    xml.replace(at, 12, "o_chunks=\"1\"");
  }
  CHECK(problem_of(xml) == "gpu 0: chunk 0 of the output without the result");
}

TEST_CASE("our own graphs come back from MSCCL programs, and add up there", "[msccl]") {
  for (const int ranks : {2, 3, 8}) {
    const TransferGraph graph = examples::ring(ranks).build();
    const Program program = from_graph(graph);
    const Program read = parse_program(to_xml(program), "x.xml");
    CHECK(to_xml(read) == to_xml(program));
    check_conversion(read);
    CHECK(to_graph(read, "x.xml").transfers().size() == graph.transfers().size());
  }
}

TEST_CASE("no channel has more blocks of a GPU than its executor takes", "[msccl]") {
  constexpr int kRanks = 40;
  examples::Draft draft;
  draft.collective = Collective::kAllGather;
  draft.ranks = kRanks;
  draft.weights.assign(kRanks, 1);
  for (int src = 0; src < kRanks; ++src) {
    draft.owners.emplace_back(src);
    for (int dst = 0; dst < kRanks; ++dst) {
      if (src != dst) {
        draft.add(src, dst, TransferOp::kCopy, {}, static_cast<std::uint32_t>(src));
      }
    }
  }
  const Program program = from_graph(draft.build());
  CHECK(program.channels <= 3);
  for (const Gpu& gpu : program.gpus) {
    std::vector<int> sending(3, 0);
    for (const ThreadBlock& block : gpu.blocks) {
      sending.at(static_cast<std::size_t>(block.channel)) += block.send_to >= 0 ? 1 : 0;
    }
    CHECK(std::ranges::max(sending) <= kMostPeers);
  }
  test::check_msccl_result(program, 1);
}

TEST_CASE("sizes that a few words ask for are refused", "[msccl]") {
  std::string huge = there_and_back();
  huge.replace(huge.find("nchunksperloop=\"1\""), 18, "nchunksperloop=\"1048576\"");
  huge.replace(huge.find("ngpus=\"2\""), 9, "ngpus=\"4096\"");
  CHECK(problem_of(huge) == ": 1048576 chunks on each of 4096 GPUs");
}

TEST_CASE("what MSCCL does not have is not written", "[msccl]") {
  const auto found_of = [](const TransferGraph& graph) -> std::string {
    try {
      from_graph(graph);
    } catch (const ConfigError& error) {
      return error.context().found;
    }
    return "nothing";
  };
  CHECK(found_of(examples::one_shot(3).build()) == "sums in which both sides add");
  CHECK(found_of(examples::ring(2, {Codec{}}).build()) == "nothing");
  examples::Draft uneven = examples::ring(2);
  uneven.weights = {1, 9001};
  CHECK(found_of(uneven.build()) == "chunks of 9002 units");
}

TEST_CASE("programs of msccl-tools are right, as graphs and on numbers", "[msccl]") {
  const char* shared = std::getenv("RACKRAIL_SHARED");
  const std::filesystem::path folder =
      (shared != nullptr ? std::filesystem::path(shared)
                         : test::source_dir().parent_path() / "shared") /
      "inputs" / "msccl";
  if (!std::filesystem::is_directory(folder)) {
    RACKRAIL_SKIP("no shared inputs here");
  }
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".xml") {
      INFO(entry.path());
      check_conversion(parse_program(read_file(entry.path()), entry.path().string()));
      ++read;
    }
  }
  CHECK(read >= 3);
}

}  // namespace rackrail::plan::msccl
