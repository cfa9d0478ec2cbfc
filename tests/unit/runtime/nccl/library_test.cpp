#include "runtime/nccl/library.hpp"

#include <catch2/catch.hpp>

#include "runtime/cuda/factory.hpp"
#include "runtime/nccl/communicator.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::library_test {
namespace {

TEST_CASE("NCCL library: versions as people write them") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(21801) == "2.18.1");
}

TEST_CASE("NCCL library: a file that is not there, or is another, is named with the reason") {
  const NcclLibrary none = load_nccl("/no/such/libnccl.so.2");
  REQUIRE(none.status.unavailable);
  CHECK_THAT(*none.status.unavailable, Catch::Contains("/no/such/libnccl.so.2"));
  const NcclLibrary other = load_nccl("libc.so.6");
  REQUIRE(other.status.unavailable);
  CHECK(*other.status.unavailable == "no NCCL: libc.so.6 has no ncclGetVersion");
}

TEST_CASE("NCCL library: what is found on this machine is complete") {
  const NcclLibrary& library = nccl_library();
  if (library.status.unavailable) {
    RACKRAIL_SKIP(*library.status.unavailable);
  }
  CHECK(library.version >= 21800);
  CHECK_THAT(library.status.detail,
             Catch::Contains(nccl_version_text(library.version)) && Catch::Contains("libnccl"));
  CHECK(std::string(library.functions.get_error_string(NcclResult::kSuccess)) == "no error");
  CHECK((library.functions.comm_shrink != nullptr) == (library.version >= 22700));
}

TEST_CASE("NCCL library: without a GPU, a communicator is refused in NCCL's words") {
  const NcclLibrary& library = nccl_library();
  if (library.status.unavailable) {
    RACKRAIL_SKIP(*library.status.unavailable);
  }
  if (!cuda_status().unavailable) {
    RACKRAIL_SKIP("there is a GPU: " + cuda_status().detail);
  }
  try {
    NcclCommunicator::join(library.functions, {}, 1, 0, {.deadline = 10_s});
    FAIL("a communicator without a GPU");
  } catch (const NcclError& error) {
    CHECK(error.code() == NcclResult::kUnhandledCudaError);
    CHECK_THAT(error.what(), Catch::StartsWith("NCCL: ncclCommInitRankConfig: "));
  }
}

}  // namespace
}  // namespace rackrail::runtime::library_test
