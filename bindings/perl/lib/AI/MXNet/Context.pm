package AI::MXNet::Context;

# Where an array is said to be. A label: all of them are in memory.

use strict;
use warnings;
use overload
    '""' => sub { "$_[0]{device_type}($_[0]{device_id})" },
    '==' => sub { "$_[0]" eq "$_[1]" },
    'eq' => sub { "$_[0]" eq "$_[1]" },
    fallback => 1;

use Scalar::Util qw(blessed);
use Syncline::Array ();
use Syncline::Error ();

our $VERSION = '0.1.0';

sub new {
    my ($class, @given) = @_;
    my %given = @given % 2 ? (device_type => @given) : @given;
    for my $option (sort keys %given) {
        Syncline::Error::argument("a context has no option $option; it has device_type, device_id") unless $option =~ /\Adevice_(?:type|id)\z/;
    }
    my ($type, $id) = (blessed $given{device_type} ? ("$given{device_type}" =~ /\A(\w+)/)[0] : $given{device_type} // 'cpu', $given{device_id} // 0);
    Syncline::Error::argument('a context is ' . Syncline::Array::shown($type) . ', and must be cpu, cpu_pinned or gpu') unless $type =~ /\A(?:cpu|cpu_pinned|gpu)\z/;
    Syncline::Error::argument('device ' . Syncline::Array::shown($id) . ' is no device: they are counted from 0') unless !ref $id && $id =~ /\A[0-9]{1,9}\z/;
    return bless { device_type => $type, device_id => $id }, $class;
}

sub current_ctx { my ($class) = @_; return $class->new(device_type => 'cpu', device_id => 0) }
sub device_type { $_[0]{device_type} }
sub device_id   { $_[0]{device_id} }

sub is { my ($given) = @_; return blessed $given && $given->isa(__PACKAGE__) }

1;

__END__

=head1 NAME

AI::MXNet::Context - where an array is said to be

=head1 SYNOPSIS

    my $array = mx->nd->ones([2, 3], ctx => mx->gpu(1));
    print $array->ctx;      # gpu(1)

=head1 DESCRIPTION

C<device_type> and C<device_id>; compared with C<==> and C<eq>. Labels that are kept and shown, and mean nothing else: every array is in the memory of this machine.

=cut
