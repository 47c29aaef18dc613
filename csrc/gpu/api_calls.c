#include "gpu/api_calls.h"

#include "gpu/cupti_abi.h"

/* X(number, class, name).  A memset and a copy within the device do not wait,
 * whatever their names say.  A batch of copies and a launch on several devices
 * cause several activities, like a graph.  The list covers CUDA 13.5; older
 * libraries do not know the last calls.  Calls that CUDA 3.2 replaced
 * (cu64..., cuMemcpy_v2) exist in no driver that CUPTI supports. */

#define RUNTIME_CALLS(X) \
    X(13, LAUNCH, cudaLaunch) \
    X(31, COPY_SYNC, cudaMemcpy) \
    X(32, COPY_SYNC, cudaMemcpy2D) \
    X(33, COPY_SYNC, cudaMemcpyToArray) \
    X(34, COPY_SYNC, cudaMemcpy2DToArray) \
    X(35, COPY_SYNC, cudaMemcpyFromArray) \
    X(36, COPY_SYNC, cudaMemcpy2DFromArray) \
    X(37, LAUNCH, cudaMemcpyArrayToArray) \
    X(38, LAUNCH, cudaMemcpy2DArrayToArray) \
    X(39, COPY_SYNC, cudaMemcpyToSymbol) \
    X(40, COPY_SYNC, cudaMemcpyFromSymbol) \
    X(41, LAUNCH, cudaMemcpyAsync) \
    X(42, LAUNCH, cudaMemcpyToArrayAsync) \
    X(43, LAUNCH, cudaMemcpyFromArrayAsync) \
    X(44, LAUNCH, cudaMemcpy2DAsync) \
    X(45, LAUNCH, cudaMemcpy2DToArrayAsync) \
    X(46, LAUNCH, cudaMemcpy2DFromArrayAsync) \
    X(47, LAUNCH, cudaMemcpyToSymbolAsync) \
    X(48, LAUNCH, cudaMemcpyFromSymbolAsync) \
    X(49, LAUNCH, cudaMemset) \
    X(50, LAUNCH, cudaMemset2D) \
    X(51, LAUNCH, cudaMemsetAsync) \
    X(52, LAUNCH, cudaMemset2DAsync) \
    X(126, SYNC, cudaThreadSynchronize) \
    X(131, SYNC, cudaStreamSynchronize) \
    X(137, SYNC, cudaEventSynchronize) \
    X(142, LAUNCH, cudaMemset3D) \
    X(143, LAUNCH, cudaMemset3DAsync) \
    X(144, COPY_SYNC, cudaMemcpy3D) \
    X(145, LAUNCH, cudaMemcpy3DAsync) \
    X(160, LAUNCH, cudaMemcpyPeer) \
    X(161, LAUNCH, cudaMemcpyPeerAsync) \
    X(162, COPY_SYNC, cudaMemcpy3DPeer) \
    X(163, LAUNCH, cudaMemcpy3DPeerAsync) \
    X(165, SYNC, cudaDeviceSynchronize) \
    X(211, LAUNCH, cudaLaunchKernel) \
    X(213, LAUNCH, cudaLaunch_ptsz) \
    X(214, LAUNCH, cudaLaunchKernel_ptsz) \
    X(215, COPY_SYNC, cudaMemcpy_ptds) \
    X(216, COPY_SYNC, cudaMemcpy2D_ptds) \
    X(217, COPY_SYNC, cudaMemcpyToArray_ptds) \
    X(218, COPY_SYNC, cudaMemcpy2DToArray_ptds) \
    X(219, COPY_SYNC, cudaMemcpyFromArray_ptds) \
    X(220, COPY_SYNC, cudaMemcpy2DFromArray_ptds) \
    X(221, LAUNCH, cudaMemcpyArrayToArray_ptds) \
    X(222, LAUNCH, cudaMemcpy2DArrayToArray_ptds) \
    X(223, COPY_SYNC, cudaMemcpyToSymbol_ptds) \
    X(224, COPY_SYNC, cudaMemcpyFromSymbol_ptds) \
    X(225, LAUNCH, cudaMemcpyAsync_ptsz) \
    X(226, LAUNCH, cudaMemcpyToArrayAsync_ptsz) \
    X(227, LAUNCH, cudaMemcpyFromArrayAsync_ptsz) \
    X(228, LAUNCH, cudaMemcpy2DAsync_ptsz) \
    X(229, LAUNCH, cudaMemcpy2DToArrayAsync_ptsz) \
    X(230, LAUNCH, cudaMemcpy2DFromArrayAsync_ptsz) \
    X(231, LAUNCH, cudaMemcpyToSymbolAsync_ptsz) \
    X(232, LAUNCH, cudaMemcpyFromSymbolAsync_ptsz) \
    X(233, LAUNCH, cudaMemset_ptds) \
    X(234, LAUNCH, cudaMemset2D_ptds) \
    X(235, LAUNCH, cudaMemsetAsync_ptsz) \
    X(236, LAUNCH, cudaMemset2DAsync_ptsz) \
    X(239, SYNC, cudaStreamSynchronize_ptsz) \
    X(243, LAUNCH, cudaMemset3D_ptds) \
    X(244, LAUNCH, cudaMemset3DAsync_ptsz) \
    X(245, COPY_SYNC, cudaMemcpy3D_ptds) \
    X(246, LAUNCH, cudaMemcpy3DAsync_ptsz) \
    X(249, COPY_SYNC, cudaMemcpy3DPeer_ptds) \
    X(250, LAUNCH, cudaMemcpy3DPeerAsync_ptsz) \
    X(269, LAUNCH, cudaLaunchCooperativeKernel) \
    X(270, LAUNCH, cudaLaunchCooperativeKernel_ptsz) \
    X(272, GRAPH, cudaLaunchCooperativeKernelMultiDevice) \
    X(311, GRAPH, cudaGraphLaunch) \
    X(312, GRAPH, cudaGraphLaunch_ptsz) \
    X(430, LAUNCH, cudaLaunchKernelExC) \
    X(431, LAUNCH, cudaLaunchKernelExC_ptsz) \
    X(482, GRAPH, cudaMemcpyBatchAsync) \
    X(483, GRAPH, cudaMemcpyBatchAsync_ptsz) \
    X(484, GRAPH, cudaMemcpy3DBatchAsync) \
    X(485, GRAPH, cudaMemcpy3DBatchAsync_ptsz) \
    X(505, LAUNCH, __cudaLaunchKernel) \
    X(506, LAUNCH, __cudaLaunchKernel_ptsz) \
    X(509, GRAPH, cudaMemcpyBatchAsync) \
    X(510, GRAPH, cudaMemcpyBatchAsync_ptsz) \
    X(511, GRAPH, cudaMemcpy3DBatchAsync) \
    X(512, GRAPH, cudaMemcpy3DBatchAsync_ptsz) \
    X(534, SYNC, cudaExecutionCtxSynchronize) \
    X(554, LAUNCH, cudaMemcpyWithAttributesAsync) \
    X(555, LAUNCH, cudaMemcpyWithAttributesAsync_ptsz) \
    X(556, LAUNCH, cudaMemcpy3DWithAttributesAsync) \
    X(557, LAUNCH, cudaMemcpy3DWithAttributesAsync_ptsz)

#define DRIVER_CALLS(X) \
    X(17, SYNC, cuCtxSynchronize) \
    X(43, COPY_SYNC, cuMemcpyHtoD) \
    X(45, COPY_SYNC, cuMemcpyDtoH) \
    X(47, LAUNCH, cuMemcpyDtoD) \
    X(49, LAUNCH, cuMemcpyDtoA) \
    X(51, LAUNCH, cuMemcpyAtoD) \
    X(53, COPY_SYNC, cuMemcpyHtoA) \
    X(54, COPY_SYNC, cuMemcpyAtoH) \
    X(55, LAUNCH, cuMemcpyAtoA) \
    X(56, COPY_SYNC, cuMemcpy2D) \
    X(57, COPY_SYNC, cuMemcpy2DUnaligned) \
    X(58, COPY_SYNC, cuMemcpy3D) \
    X(60, LAUNCH, cuMemcpyHtoDAsync) \
    X(62, LAUNCH, cuMemcpyDtoHAsync) \
    X(64, LAUNCH, cuMemcpyDtoDAsync) \
    X(66, LAUNCH, cuMemcpyHtoAAsync) \
    X(67, LAUNCH, cuMemcpyAtoHAsync) \
    X(68, LAUNCH, cuMemcpy2DAsync) \
    X(69, LAUNCH, cuMemcpy3DAsync) \
    X(71, LAUNCH, cuMemsetD8) \
    X(73, LAUNCH, cuMemsetD16) \
    X(75, LAUNCH, cuMemsetD32) \
    X(77, LAUNCH, cuMemsetD2D8) \
    X(79, LAUNCH, cuMemsetD2D16) \
    X(81, LAUNCH, cuMemsetD2D32) \
    X(115, LAUNCH, cuLaunch) \
    X(116, LAUNCH, cuLaunchGrid) \
    X(117, LAUNCH, cuLaunchGridAsync) \
    X(121, SYNC, cuEventSynchronize) \
    X(126, SYNC, cuStreamSynchronize) \
    X(216, LAUNCH, cuMemsetD8Async) \
    X(218, LAUNCH, cuMemsetD16Async) \
    X(220, LAUNCH, cuMemsetD32Async) \
    X(222, LAUNCH, cuMemsetD2D8Async) \
    X(224, LAUNCH, cuMemsetD2D16Async) \
    X(226, LAUNCH, cuMemsetD2D32Async) \
    X(249, LAUNCH, cuMemsetD8_v2) \
    X(250, LAUNCH, cuMemsetD16_v2) \
    X(251, LAUNCH, cuMemsetD32_v2) \
    X(252, LAUNCH, cuMemsetD2D8_v2) \
    X(253, LAUNCH, cuMemsetD2D16_v2) \
    X(254, LAUNCH, cuMemsetD2D32_v2) \
    X(276, COPY_SYNC, cuMemcpyHtoD_v2) \
    X(277, LAUNCH, cuMemcpyHtoDAsync_v2) \
    X(278, COPY_SYNC, cuMemcpyDtoH_v2) \
    X(279, LAUNCH, cuMemcpyDtoHAsync_v2) \
    X(280, LAUNCH, cuMemcpyDtoD_v2) \
    X(281, LAUNCH, cuMemcpyDtoDAsync_v2) \
    X(282, COPY_SYNC, cuMemcpyAtoH_v2) \
    X(283, LAUNCH, cuMemcpyAtoHAsync_v2) \
    X(284, LAUNCH, cuMemcpyAtoD_v2) \
    X(285, LAUNCH, cuMemcpyDtoA_v2) \
    X(286, LAUNCH, cuMemcpyAtoA_v2) \
    X(287, COPY_SYNC, cuMemcpy2D_v2) \
    X(288, COPY_SYNC, cuMemcpy2DUnaligned_v2) \
    X(289, LAUNCH, cuMemcpy2DAsync_v2) \
    X(290, COPY_SYNC, cuMemcpy3D_v2) \
    X(291, LAUNCH, cuMemcpy3DAsync_v2) \
    X(292, COPY_SYNC, cuMemcpyHtoA_v2) \
    X(293, LAUNCH, cuMemcpyHtoAAsync_v2) \
    X(305, COPY_SYNC, cuMemcpy) \
    X(306, LAUNCH, cuMemcpyAsync) \
    X(307, LAUNCH, cuLaunchKernel) \
    X(318, LAUNCH, cuMemcpyPeer) \
    X(319, LAUNCH, cuMemcpyPeerAsync) \
    X(320, COPY_SYNC, cuMemcpy3DPeer) \
    X(321, LAUNCH, cuMemcpy3DPeerAsync) \
    X(397, COPY_SYNC, cuMemcpyHtoD_v2_ptds) \
    X(398, COPY_SYNC, cuMemcpyDtoH_v2_ptds) \
    X(399, LAUNCH, cuMemcpyDtoD_v2_ptds) \
    X(400, LAUNCH, cuMemcpyDtoA_v2_ptds) \
    X(401, LAUNCH, cuMemcpyAtoD_v2_ptds) \
    X(402, COPY_SYNC, cuMemcpyHtoA_v2_ptds) \
    X(403, COPY_SYNC, cuMemcpyAtoH_v2_ptds) \
    X(404, LAUNCH, cuMemcpyAtoA_v2_ptds) \
    X(405, COPY_SYNC, cuMemcpy2D_v2_ptds) \
    X(406, COPY_SYNC, cuMemcpy2DUnaligned_v2_ptds) \
    X(407, COPY_SYNC, cuMemcpy3D_v2_ptds) \
    X(408, COPY_SYNC, cuMemcpy_ptds) \
    X(409, LAUNCH, cuMemcpyPeer_ptds) \
    X(410, COPY_SYNC, cuMemcpy3DPeer_ptds) \
    X(411, LAUNCH, cuMemsetD8_v2_ptds) \
    X(412, LAUNCH, cuMemsetD16_v2_ptds) \
    X(413, LAUNCH, cuMemsetD32_v2_ptds) \
    X(414, LAUNCH, cuMemsetD2D8_v2_ptds) \
    X(415, LAUNCH, cuMemsetD2D16_v2_ptds) \
    X(416, LAUNCH, cuMemsetD2D32_v2_ptds) \
    X(418, LAUNCH, cuMemcpyAsync_ptsz) \
    X(419, LAUNCH, cuMemcpyHtoAAsync_v2_ptsz) \
    X(420, LAUNCH, cuMemcpyAtoHAsync_v2_ptsz) \
    X(421, LAUNCH, cuMemcpyHtoDAsync_v2_ptsz) \
    X(422, LAUNCH, cuMemcpyDtoHAsync_v2_ptsz) \
    X(423, LAUNCH, cuMemcpyDtoDAsync_v2_ptsz) \
    X(424, LAUNCH, cuMemcpy2DAsync_v2_ptsz) \
    X(425, LAUNCH, cuMemcpy3DAsync_v2_ptsz) \
    X(426, LAUNCH, cuMemcpyPeerAsync_ptsz) \
    X(427, LAUNCH, cuMemcpy3DPeerAsync_ptsz) \
    X(428, LAUNCH, cuMemsetD8Async_ptsz) \
    X(429, LAUNCH, cuMemsetD16Async_ptsz) \
    X(430, LAUNCH, cuMemsetD32Async_ptsz) \
    X(431, LAUNCH, cuMemsetD2D8Async_ptsz) \
    X(432, LAUNCH, cuMemsetD2D16Async_ptsz) \
    X(433, LAUNCH, cuMemsetD2D32Async_ptsz) \
    X(440, SYNC, cuStreamSynchronize_ptsz) \
    X(442, LAUNCH, cuLaunchKernel_ptsz) \
    X(477, LAUNCH, cuLaunchCooperativeKernel) \
    X(478, LAUNCH, cuLaunchCooperativeKernel_ptsz) \
    X(480, GRAPH, cuLaunchCooperativeKernelMultiDevice) \
    X(514, GRAPH, cuGraphLaunch) \
    X(515, GRAPH, cuGraphLaunch_ptsz) \
    X(652, LAUNCH, cuLaunchKernelEx) \
    X(653, LAUNCH, cuLaunchKernelEx_ptsz) \
    X(776, GRAPH, cuMemcpyBatchAsync) \
    X(777, GRAPH, cuMemcpyBatchAsync_ptsz) \
    X(778, GRAPH, cuMemcpy3DBatchAsync) \
    X(779, GRAPH, cuMemcpy3DBatchAsync_ptsz) \
    X(796, GRAPH, cuMemcpyBatchAsync_v2) \
    X(797, GRAPH, cuMemcpyBatchAsync_v2_ptsz) \
    X(798, GRAPH, cuMemcpy3DBatchAsync_v2) \
    X(799, GRAPH, cuMemcpy3DBatchAsync_v2_ptsz) \
    X(800, SYNC, cuCtxSynchronize_v2) \
    X(837, LAUNCH, cuMemcpyWithAttributesAsync) \
    X(838, LAUNCH, cuMemcpyWithAttributesAsync_ptsz) \
    X(839, LAUNCH, cuMemcpy3DWithAttributesAsync) \
    X(840, LAUNCH, cuMemcpy3DWithAttributesAsync_ptsz)

#define RUNTIME_ROW(number, what, name) \
    {FP_CUPTI_DOMAIN_RUNTIME, FP_API_##what, number},
#define DRIVER_ROW(number, what, name) \
    {FP_CUPTI_DOMAIN_DRIVER, FP_API_##what, number},
#define CLASS(number, what, name) [number] = FP_API_##what,

const fp_api_call fp_api_calls[] = {RUNTIME_CALLS(RUNTIME_ROW)
                                        DRIVER_CALLS(DRIVER_ROW)};

const uint32_t fp_api_call_count =
    sizeof(fp_api_calls) / sizeof(fp_api_calls[0]);

const uint8_t fp_api_runtime_class[FP_API_CALLS] = {RUNTIME_CALLS(CLASS)};
const uint8_t fp_api_driver_class[FP_API_CALLS] = {DRIVER_CALLS(CLASS)};
