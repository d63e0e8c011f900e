// Calls of one thread that follow one another closely, with the same helpers.
#pragma once

#include "kernels/team.hpp"

namespace pagewheel::kernels {

/// While it lives, helpers that came to the calling thread's team stay: between calls that follow
/// one another closely, of which some are one thread's work. Sessions may be nested.
class TeamSession {
public:
    TeamSession() : m_was_kept(Team::mine().is_kept()) { Team::mine().keep(true); }
    ~TeamSession() { Team::mine().keep(m_was_kept); }
    TeamSession(const TeamSession&) = delete;
    TeamSession& operator=(const TeamSession&) = delete;

private:
    bool m_was_kept;
};

}  // namespace pagewheel::kernels
