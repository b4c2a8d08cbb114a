//! One contract, five ways to keep it: what every link promises, whatever carries it.

mod meeting;
mod promises;

/// Runs every promise against every transport: `link_suite!(inproc, shm, …)` names functions of `meeting`.
macro_rules! link_suite {
    ($($transport:ident),*) => { $( mod $transport { promises!($transport); } )* };
}

macro_rules! promises {
    ($transport:ident) => {
        promises!($transport:
            frames_arrive_whole_and_in_order,
            a_payload_may_be_made_while_it_is_sent,
            a_frame_may_go_bit_by_bit_while_its_sender_does_other_things,
            what_is_offered_and_not_taken_may_follow_later,
            each_frame_carries_epoch_rank_and_operation,
            both_directions_work_at_once,
            an_empty_wait_ends_at_its_deadline_and_harms_nothing,
            a_head_and_a_body_can_be_read_with_any_patience,
            a_reader_that_does_not_read_breaks_the_frame_and_both_sides_know,
            a_peer_that_leaves_is_noticed_by_both_halves,
            a_peer_that_leaves_in_the_middle_of_a_frame_is_noticed,
            what_was_sent_before_leaving_still_arrives,
            severing_wakes_both_halves_at_once,
            severing_tells_the_peer,
            a_frame_of_another_epoch_is_refused_and_skipped,
            a_buffer_of_the_wrong_length_is_refused_and_changes_nothing,
            a_body_left_behind_is_skipped,
            an_interrupt_ends_a_wait,
            what_no_receiver_would_take_is_not_sent,
            everything_is_counted,
            more_than_two_gigabytes_fit_in_a_frame
        );
    };
    ($transport:ident: $($promise:ident),*) => {
        $( #[test] fn $promise() { crate::promises::$promise(crate::meeting::$transport) } )*
    };
}

link_suite!(inproc, shm, unix, tcp, tcp_encrypted);
