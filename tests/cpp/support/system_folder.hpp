// A folder that looks as a system's root does, for what reads /proc and /sys.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pagewheel {

class SystemFolder : public testing::Test {
protected:
    SystemFolder()
        : m_root(std::filesystem::path(testing::TempDir()) /
                 testing::UnitTest::GetInstance()->current_test_info()->name()) {
        std::filesystem::remove_all(m_root);
    }
    ~SystemFolder() override { std::filesystem::remove_all(m_root); }

    void write(const std::string& file, const std::string& text) const {
        std::filesystem::create_directories((m_root / file).parent_path());
        std::ofstream(m_root / file) << text;
    }
    const std::filesystem::path& root() const { return m_root; }

private:
    std::filesystem::path m_root;
};

}  // namespace pagewheel
